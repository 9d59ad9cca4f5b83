"""Generate commands from the signatures and docstrings of operations.

A parameter becomes an option: its type from the annotation, its choices and its help from the
docstring. By hand is only what a shell needs: a short name, what is read, printed or written.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import Parameter, cleandoc
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import orograph as og
from orograph.cli.points import cells_or_length, read_points
from orograph.run.options import RunSpec
from orograph.tiles.addresses import without_secrets

if TYPE_CHECKING:
    from orograph.cli.parser import Subcommands

Namespace = argparse.Namespace
NUMBERS = {"int": int, "float": float}
RUN = RunSpec.heading
OUT = "Zarr store to write, or a file: .tif, .nc; for tables .gpkg, .geojson, .fgb, .parquet, .csv"
FLAGS = {
    "candidates": ("--candidates", "--candidate"),
    "facilities": ("--facilities", "--facility"),
    "sources": ("--sources", "--point", "--source"),
    "habitat": ("--habitat", "--patch"),
    "s": ("--from-file", "--from"),
    "t": ("--to-file", "--to"),
}
"""Options of parameters that are points: of a file of them, then of a point; by default
``--points`` and ``--point``."""


def print_attributes(result: Any, options: Namespace) -> None:
    """Print where a result is and what it has, and its attributes, one in each line."""
    variables = list(getattr(result, "data_vars", ()))
    if variables and getattr(options, "out", None):
        print(f"{without_secrets(options.out)}: {', '.join(variables)}")
    for name, value in result.attrs.items():
        if name != "Conventions":
            print(f"{name}: {value}")


@dataclass(frozen=True)
class Command:
    """A command that runs an operation, with what differs from its signature."""

    operation_name: str
    """Name under which the package exports the operation, which is imported when it is used."""
    aliases: tuple[str, ...] = ()
    own_name: str = ""
    """Name of the command, if it differs from the operation's name."""
    about: str = ""
    """Help text of the command; by default the first sentence of the operation's docstring."""
    subject: str = "store or raster file"
    """Help text of the first argument: the kinds of input that it may be."""
    first: str = ""
    """Name of the first argument in the shell, if it differs from the operation's."""
    only: frozenset[str] | None = None
    """Parameters that the shell offers, beside those without a default; None: all."""
    without: frozenset[str] = frozenset()
    """Parameters that the shell does not offer."""
    out: str | None = OUT
    """Help text of the last argument, the output; None: ``out``, if there is one, is an option."""
    cluster: bool = True
    """Whether to start a cluster even where none is asked for."""
    read: Callable[[Namespace], Any] | None = None
    """Function that reads the first argument; None: the operation reads it."""
    defaults: Callable[[Namespace, Any], Mapping[str, Any]] = lambda options, subject: {}
    """Function of the options and the input: arguments that differ from the operation's
    defaults."""
    extend: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    """Function that adds options which only the shell has."""
    before: Callable[[Namespace], None] = lambda options: None
    """Function that checks the options before the run."""
    after: Callable[[Any, Namespace], None] = print_attributes
    """Function that prints or writes the result."""
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Choices by parameter, for parameters whose docstring does not list them."""

    @property
    def name(self) -> str:
        """The name of the command."""
        return self.own_name or self.operation_name

    @property
    def operation(self) -> og.Operation[..., Any]:
        """The operation."""
        operation: og.Operation[..., Any] = attrgetter(self.operation_name)(og)
        return operation

    @property
    def parameters(self) -> list[Parameter]:
        """Parameters of the operation that the command offers as options."""
        offered = self.operation.__signature__.parameters.values()
        left_out = self.without | {"client", "storage_options"}  # which every command has
        if self.out is not None:
            left_out |= {"out"}
        return [
            p for p in offered
            if p.name not in left_out
            and (self.only is None or p.default is p.empty or p.name in self.only)
        ]  # fmt: skip

    def _add_option(
        self,
        parser: argparse._ActionsContainer,
        parameter: Parameter,
        documented: Mapping[str, tuple[str, str]],
    ) -> None:
        """Add a parameter of the operation to a group of the command's options."""
        kind, text = documented[parameter.name]
        choices = self.choices.get(parameter.name)
        add_option(parser, parameter, kind, first_sentence(text), choices)

    def add(self, commands: Subcommands, run: Callable[..., Any]) -> None:
        """Add the command to a parser; ``run`` is called to run the operation."""
        documented = entries_of(self.operation)
        about = " ".join(cleandoc(self.operation.__doc__ or "").partition("\n\n")[0].split())
        about = self.about or first_sentence(about).removeprefix("Return ")
        parser = commands.add_parser(self.name, aliases=list(self.aliases), help=about)
        first, *others = self.parameters
        name = self.first or first.name
        parser.add_argument(name, help=self.subject)
        # Required parameters stand between the input and the output.
        required = [p for p in others if p.default is p.empty]
        for parameter in required:
            self._add_option(parser, parameter, documented)
        if self.out is not None:
            parser.add_argument("out", help=self.out)
        sections = {
            name: heading for heading, entries in self.operation.sections.items()
            for name in entries
        }  # fmt: skip
        groups: dict[str, argparse._ActionsContainer] = {"": parser}
        for parameter in others:
            if parameter not in required:
                heading = sections.get(parameter.name, "")
                if heading not in groups:
                    title = "run" if heading == RUN else heading.lower()
                    groups[heading] = parser.add_argument_group(title)
                self._add_option(groups[heading], parameter, documented)
        if "client" in self.operation.options and self.only is None:
            workers = groups.get(RUN, parser).add_mutually_exclusive_group()
            usual = "one thread for each core"
            if self.cluster:
                usual += " up to 8192 x 8192 cells, else one worker for each core or GPU"
            workers.add_argument("--workers", type=int, help=f"default: {usual}")
            workers.add_argument("--scheduler", help="address of a running Dask scheduler")
        self.extend(parser)

        def do(options: Namespace) -> None:
            self.before(options)
            subject = self.read(options) if self.read else getattr(options, name)
            given = {**self.defaults(options, subject), **given_in(options, others)}
            if self.out is not None:
                given.setdefault("out", options.out)
            by_place = [p.name for p in others if p.kind is not p.KEYWORD_ONLY]
            places = [given.pop(name) for name in by_place if name in given]
            result = run(self.operation, (subject, *places), options, given, self.cluster)
            if not given.get("detach"):
                self.after(result, options)

        parser.set_defaults(command=do)


def entries_of(operation: og.Operation[..., Any]) -> dict[str, tuple[str, str]]:
    """Return type and description of each parameter, from an operation's docstring.

    "As for `another`." stands for what the other operation says of the same parameter.
    """
    doc = cleandoc(operation.__doc__ or "")
    found: dict[str, tuple[str, str]] = {}
    section = doc.partition("\nParameters\n-")[2].partition("\nReturns\n-")[0]
    for names, kind, text in re.findall(
        r"^(\w[\w, ]*?)(?: : (.*))?\n((?:    .*\n?)+)", section, re.MULTILINE
    ):
        other = re.match(r"As (?:for|of) `(\w+)`", " ".join(text.split()))
        for name in names.split(", "):
            kind_of, text_of = kind, " ".join(text.split())
            if other:
                kind_of, text_of = entries_of(getattr(og, other[1])).get(name, (kind, text_of))
            found[name] = kind or kind_of, text_of
    return found


def first_sentence(text: str) -> str:
    """Return the first sentence of a description, as help text of argparse."""
    # Not at an ellipsis. argparse formats help by %, so signs of it are doubled.
    sentence = re.split(r"(?<=[^.]\.)\s", text + " ", maxsplit=1)[0].rstrip(". ")
    return sentence.replace("`", "").replace("%", "%%")


def add_option(
    parser: argparse._ActionsContainer,
    parameter: Parameter,
    kind: str,
    text: str,
    choices: tuple[str, ...] | None = None,
) -> None:
    """Add a parameter of an operation to a parser as one or two options."""
    flag, needed = "--" + parameter.name.replace("_", "-"), parameter.default is parameter.empty
    annotation = str(parameter.annotation).removesuffix(" | None")
    if "points" in kind:
        where = parser.add_mutually_exclusive_group(required=needed)
        of_file, *of_point = FLAGS.get(parameter.name, (flag, flag.removesuffix("s")))
        dest, what = parameter.name, "raster or vector file"
        if "raster" not in kind:
            dest, what = f"{dest}_file", "vector file, or text file with x and y in each line"
        where.add_argument(of_file, dest=dest, metavar="FILE", help=f"{what}; {text}")
        where.add_argument(
            *of_point,
            dest=f"{parameter.name}_points",
            type=float,
            nargs=2,
            action="append",
            metavar=("X", "Y"),
            help="a point; repeat for more",
        )
    elif annotation == "SnapLike":
        parser.add_argument(flag, type=cells_or_length, metavar="CELLS|LENGTH", help=text)
    elif str(parameter.annotation) == "bool | None":
        # left out, switched on, or switched off
        action = argparse.BooleanOptionalAction
        parser.add_argument(flag, action=action, default=None, help=text)
    elif annotation == "bool | float":
        # by itself it stands for True
        parser.add_argument(flag, type=float, nargs="?", const=True, help=text)
    elif annotation.startswith("bool"):
        # An option that is left out is None, so the operation's own default holds.
        on = parameter.default is not True
        switch = flag if on else f"--no-{flag[2:]}"
        text = text if on else f"switch off: {text}"
        parser.add_argument(switch, dest=parameter.name, action="store_const", const=on, help=text)
    elif needed and annotation == "Sequence[float]":
        parser.add_argument(parameter.name, type=float, nargs="+", help=text)
    elif needed:
        parser.add_argument(parameter.name, type=NUMBERS.get(annotation, str), help=text)
    elif annotation == "Graph":
        parser.add_argument(flag, metavar="GRAPH", help=f"store of 'orograph graph read': {text}")
    elif annotation.startswith("Mapping"):
        pair: Callable[[str], Any] = _named
        what = "FILE"
        if "float | str" in annotation:
            pair, what = _number_or_column, "NUMBER|COLUMN"
        elif "float" in annotation:
            pair, what = pair_of, "NUMBER"
        parser.add_argument(flag, nargs="+", type=pair, metavar=f"NAME={what}", help=text)
    elif annotation == "BarriersLike":
        text = f"raster or vector file, with what it costs to cross it; repeat for more: {text}"
        parser.add_argument(flag, action="append", type=_barrier, metavar="FILE[=COST]", help=text)
    elif "str | Sequence[float]" in annotation:
        parser.add_argument(flag, type=_number_or_text, metavar="NUMBER|COLUMN", help=text)
    elif annotation.endswith("Like"):
        what = "raster or vector file" if "VectorLike" in annotation else "store or raster file"
        parser.add_argument(flag, metavar="FILE", help=f"{what}: {text}")
    else:
        # Of an argument that is one number or several the shell takes one.
        several = "Sequence" in annotation and not annotation.startswith("float |")
        word = re.findall(r"\b(int|float|str)\b", annotation)[-1 if several else 0]
        convert = NUMBERS.get(word, str)
        listed = re.findall(r"\{(.*?)\}", kind)
        values = re.findall(r"[\w.-]+", listed[0]) if listed else choices
        parser.add_argument(
            flag,
            type=convert,
            nargs="+" if several else None,
            choices=values and [convert(value) for value in values],
            help=text,
        )


def _barrier(text: str) -> str | tuple[str, float]:
    """Parse ``path`` or ``path=number``."""
    path, _, number = text.rpartition("=")
    try:
        return path, float(number)
    except ValueError:
        return text


def pair_of(text: str) -> tuple[str, float]:
    """Parse ``name=number``; a ValueError makes argparse name the option."""
    name, _, number = text.partition("=")
    return name, float(number)


def _number_or_column(text: str) -> tuple[str, float | str]:
    """Parse ``name=number`` or ``name=column``."""
    name, value = _named(text)
    return name, _number_or_text(value)


def _number_or_text(text: str) -> float | str:
    """Parse a number, or the name of a column."""
    try:
        return float(text)
    except ValueError:
        return text


def _named(text: str) -> tuple[str, str]:
    """Parse ``name=path``."""
    name, separator, path = text.partition("=")
    if not separator:
        raise ValueError
    return name, path


def given_in(options: Namespace, parameters: list[Parameter]) -> dict[str, Any]:
    """Return the keyword arguments for an operation that a command line gives."""
    given = {}
    for parameter in parameters:
        name = parameter.name
        value = getattr(options, f"{name}_points", None) or getattr(options, name, None)
        file = getattr(options, f"{name}_file", None)
        if file is None and "PointsLike" in str(parameter.annotation) and isinstance(value, str):
            # points in a file of text, which is neither a raster nor a vector file
            file = value if value.lower().endswith(".txt") else None
        if file is not None:
            value = read_points(file)
        if value is None:
            continue
        if str(parameter.annotation).startswith("Graph"):
            value = og.read_graph(value)
        elif str(parameter.annotation).startswith("Mapping"):
            value = dict(value)
        given[name] = value
    return given
