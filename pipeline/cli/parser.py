"""Argument parser: errors of one line, an example for each command, and completion by shells.

And ``--storage-option KEY=VALUE``, which all commands have that open stores.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from orograph.tiles.arguments import closest
from orograph.tiles.errors import InputError
from orograph.tiles.object_options import is_secret

STORAGE_OPTION = "--storage-option"
WITHOUT_STORES = {"demo", "compile", "completion", "runs", "status", "cancel"}
"""Commands that open no store of the user."""
SHELLS = ("bash", "zsh")

EXAMPLES = {
    "demo": "--folder demo",
    "ingest": "dem.tif dem.zarr --tile 512",
    "info": "dem.zarr",
    "verify": "dem.zarr cost.zarr",
    "plan": "cost_distance friction.tif --workers 4",
    "completion": "bash",
    "least_cost_path": "cost.zarr --points villages.gpkg --label name --out paths.gpkg",
    "corridor": "from_one.zarr from_other.zarr corridor.tif --normalize",
    "to_geotiff": "cost.zarr cost.tif --variable cost",
    "to_file": "cost.zarr cost.nc",
    "rasterize": "parks.gpkg dem.tif parks.tif --label park",
    "roads": "roads.gpkg dem.tif roads.zarr --speed 50",
    "forest_lines": "forest.zarr forest.gpkg",
    "stream_lines": "streams.zarr streams.gpkg",
    "compile": "cost_distance",
    "index build": "friction.tif index.zarr",
    "index query": "index.zarr cost.tif --points villages.gpkg",
    "index matrix": "index.zarr --points villages.gpkg --label name",
    "runs": "--scheduler tcp://127.0.0.1:8786",
    "status": "cost.zarr --scheduler tcp://127.0.0.1:8786",
    "cancel": "cost.zarr --scheduler tcp://127.0.0.1:8786",
    "minimum_spanning_forest": "dem.tif forest.zarr",
    "cost_distance": "friction.tif cost.tif --sources parks.gpkg --label park",
    "walking_time": "dem.tif seconds.zarr --point 600000 5100000",
    "connected_components": "cover.tif parts.zarr --table parts.gpkg",
    "hop_distance": "mask.tif hops.tif --point 600000 5100000",
    "fill": "dem.tif filled.tif",
    "flood": "dem.tif level.tif --point 600000 5100000",
    "polygonize": "zones.tif zones.gpkg",
    "isochrones": "seconds.zarr 0.5 1 2 bands.gpkg --unit h",
    "region_network": "friction.tif network.gpkg --regions parks.gpkg --label park",
    "catchments": "friction.tif people.tif served.zarr --facilities clinics.gpkg",
    "site": "friction.tif people.tif 3600 sites.zarr --candidates places.gpkg --count 3",
    "floating_catchments": "friction.tif people.tif 3600 access.tif --facilities clinics.gpkg",
    "linkages": "friction.tif links.zarr --habitat patches.gpkg --label patch --threshold 2000",
    "peaks": "dem.tif peaks.geojson --min-prominence 50",
    "depressions": "dem.tif depressions.gpkg --min-depth 2",
    "passes": "dem.tif --points villages.gpkg",
    "is_connected": "mask.tif --from 600000 5100000 --to 610000 5090000",
    "all_pairs": "matrix.npz distances.csv",
    "breach_depressions": "dem.tif breached.tif --max-length 100",
    "flow_accumulation": "flow.tif upstream.tif --codes esri",
    "downstream": "flow.tif dem.tif outlets.tif --codes esri",
    "flow_direction": "dem.tif flow.tif --codes esri",
    "flow_distance": "flow.tif distance.tif --codes esri",
    "height_above_drainage": "dem.tif flow.zarr streams.tif height.tif",
    "zonal": "basins.tif --values rain.tif --table rain.csv",
    "drainage_network": "dem.zarr 1000 network.zarr",
    "streams": "flow.zarr upstream.zarr 1000 streams.zarr",
    "upstream": "flow.tif rain.tif mean.tif --codes esri",
    "upstream_length": "flow.zarr length.tif",
    "watersheds": "flow.zarr basins.zarr --outlets gauges.gpkg",
    "graph read": "roads.gr roads.zarr",
    "graph paths": "roads.zarr paths.zarr --source 0",
    "graph mst": "roads.zarr forest.zarr",
    "graph components": "roads.zarr parts.zarr",
    "graph pairs": "roads.zarr distances.zarr",
}
"""Arguments in the example of each command, by the command's name."""


if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction["Parser"]
    """Type of the object to which commands are added."""


class Parser(argparse.ArgumentParser):
    """Argument parser that reports errors in one line and accepts no abbreviated options.

    What it parses holds the parser of the command as ``parser``.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with status 2."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse arguments; report an unknown command or option before a missing argument."""
        if self._subparsers is None:
            self._refuse_unknown(args or [])
        else:
            args = self._name_command(args or [])
        found, rest = super().parse_known_args(args, namespace)
        if not hasattr(found, "parser"):
            found.parser = self
        return found, rest

    def _refuse_unknown(self, words: Sequence[str]) -> None:
        options = [name for name in self._option_string_actions if name.startswith("--")]
        for word in words:
            name = word.partition("=")[0]
            if name == "--":
                return
            if name.startswith("--") and name not in options:
                places = [action.dest for action in self._actions if not action.option_strings]
                if name[2:].replace("-", "_") in places:
                    usage = " ".join([self.prog, *places])
                    self.error(f"{name}: given by its place, as in {usage}")
                near = closest(name, options)
                self.error(f"{name}: unknown" + (f"; did you mean {near}?" if near else ""))

    def _name_command(self, words: Sequence[str]) -> list[str]:
        """Return the words with the command by its own name; refuse one that is unknown."""
        groups = (a for a in self._actions if isinstance(a, argparse._SubParsersAction))
        names = next(groups).choices
        for at, word in enumerate(words):
            # Operations have underscores in Python; in the shell hyphens are as usual.
            plain = word.replace("-", "_")
            if plain in names and word not in names:
                return [*words[:at], plain, *words[at + 1 :]]
            if not word.startswith("-"):
                if word not in names:
                    near = closest(plain, names)
                    self.error(f"{word}: unknown" + (f"; did you mean {near}?" if near else ""))
                break
        return list(words)

    def in_shell(self, message: str) -> str:
        """Replace argument names in a message by the command-line options they stand for."""

        def option(name: str) -> str | None:
            flag = "--" + name.replace("_", "-")
            return flag if flag in self._option_string_actions else None

        def switched_off(name: str) -> str | None:
            """Return the option that sets an argument to False, or None."""
            off = "--no-" + name.replace("_", "-")
            if off in self._option_string_actions:
                return off
            actions = (a for a in self._actions if a.dest == name and a.const is False)
            return next((action.option_strings[-1] for action in actions), None)

        def value(match: re.Match[str]) -> str:
            if match[2] == "False":
                return switched_off(match[1]) or match[0]
            flag = option(match[1])
            if flag is None:
                return match[0]
            if match[2] in ("True", ""):
                return flag
            return f"{flag} {match[2].strip(chr(39))}"

        # An error begins with the name of its argument, and may name others with a value.
        message = re.sub(r"^(\w+)(?=: )", lambda match: option(match[1]) or match[0], message)
        return re.sub(r"\b([a-z_]+)=('[^']*'|[\w.-]*\w|)", value, message)


def add_storage_option(parser: argparse.ArgumentParser) -> None:
    """Add the option to each command below a parser."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            # Aliases lead to one parser, to which an option may be added once.
            own = {id(p): p for name, p in action.choices.items() if name not in WITHOUT_STORES}
            for below in own.values():
                add_storage_option(below)
            return
    parser.add_argument(
        STORAGE_OPTION,
        action="append",
        metavar="KEY=VALUE",
        help="option of object stores, such as region=eu-central-1; repeat for more",
    )


def storage_options_in(options: argparse.Namespace) -> dict[str, str] | None:
    """Return the options that a command line gives; None if it gives none."""
    given: list[str] | None = getattr(options, "storage_option", None)
    if given is None:
        return None
    found = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator:  # the text may be a secret
            raise InputError("storage_option: write KEY=VALUE, such as region=eu-central-1")
        found[name] = value
    return found


def without_secrets(words: Sequence[str]) -> list[str]:
    """Return the words of a command line, with dots in place of the values of secrets."""
    shown: list[str] = []
    for word in words:
        flag = f"{STORAGE_OPTION}=" if word.startswith(f"{STORAGE_OPTION}=") else ""
        name, separator, _ = word.removeprefix(flag).partition("=")
        # The pair stands in the same word as the option or in the next one.
        if (flag or shown[-1:] == [STORAGE_OPTION]) and separator and is_secret(name):
            word = f"{flag}{name}=..."
        shown.append(word)
    return shown


def subcommands(
    parser: argparse.ArgumentParser, name: str = ""
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the name and the parser of each command, once under the first of its names."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield name.strip(), parser
    known = []
    for word, below in groups[0].choices.items() if groups else ():
        if below not in known:
            known.append(below)
            yield from subcommands(below, f"{name} {word}")


def add_examples(parser: argparse.ArgumentParser) -> None:
    """Show the example of each command at the end of its help."""
    for name, command in subcommands(parser):
        if name in EXAMPLES:
            command.epilog = f"example: {parser.prog} {name} {EXAMPLES[name]}"


def add_descriptions(parser: argparse.ArgumentParser) -> None:
    """Begin the help of each command with what the list of commands says of it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for listed in action._choices_actions:
                below, text = action.choices[listed.dest], listed.help or ""
                below.description = f"{text[:1].upper()}{text[1:]}."
                add_descriptions(below)


def add_completion(commands: Subcommands, parser: argparse.ArgumentParser) -> None:
    """Add the command ``completion``, which prints a script for a shell, to the parser."""
    added = commands.add_parser("completion", help="a script that completes command lines")
    added.add_argument("shell", choices=SHELLS, help="the shell that is to complete them")
    added.set_defaults(command=lambda options: print(completion(parser, options.shell)))


def completion(parser: argparse.ArgumentParser, shell: str) -> str:
    """Return the script by which a shell completes commands, their options and files."""
    import shtab

    for _, command in subcommands(parser):
        for action in command._actions:
            # Positional words that are neither numbers nor choices are files, and so are options
            # that say FILE.
            takes_text = action.type is None and action.choices is None and action.nargs != 0
            if takes_text and (not action.option_strings or action.metavar == "FILE"):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell))
