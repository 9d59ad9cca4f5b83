"""Commands of operations on rasters, made from the operations' own signatures and docstrings.

A parameter becomes an option: its type from the annotation, its choices and its help from the
docstring. By hand is only what a shell needs: a short name, what is printed or written besides.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import Parameter, cleandoc
from typing import TYPE_CHECKING, Any

import orograph as og

if TYPE_CHECKING:
    import xarray as xr

Namespace = argparse.Namespace
NUMBERS = {"int": int, "float": float}
OUT = "Zarr store to write, or a GeoTIFF if it ends in .tif"


@dataclass(frozen=True)
class Command:
    """The command of an operation that writes a store, run on a cluster."""

    operation: og.Operation[..., xr.Dataset]
    name: str
    aliases: tuple[str, ...] = ()
    without: frozenset[str] = frozenset()
    """Parameters that the shell does not offer."""
    defaults: Callable[[Namespace], Mapping[str, Any]] = lambda options: {}
    """Arguments that differ from the operation's own defaults."""
    extend: Callable[[argparse.ArgumentParser], None] = lambda parser: None
    """Adds options of the shell alone."""
    before: Callable[[Namespace], None] = lambda options: None
    """Checks them, before the run."""
    after: Callable[[xr.Dataset, Namespace], None] = lambda result, options: None
    """Uses them, with the result."""
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Those of parameters whose docstring does not list them."""

    @property
    def parameters(self) -> list[Parameter]:
        """The operation's own parameters that the shell offers."""
        return [p for p in self.operation.own if p.name not in self.without]

    def add(self, commands: Any, add_run_options: Callable[..., None], run: Any) -> None:
        """Add the command; ``run`` runs the operation on a cluster and watches it."""
        documented = entries_of(self.operation)
        about = cleandoc(self.operation.__doc__ or "").split("\n", 1)[0]
        about = about.removeprefix("Return ").removesuffix(".").replace("`", "")
        parser = commands.add_parser(self.name, aliases=list(self.aliases), help=about)
        first, *others = self.parameters
        optional = "None" in documented[first.name][0]
        without = "; '-' for models that go without" if optional else ""
        parser.add_argument(first.name, help=f"store or raster file{without}")
        parser.add_argument("out", help=OUT)
        for parameter in others:
            kind, text = documented[parameter.name]
            choices = self.choices.get(parameter.name)
            add_option(parser, parameter, kind, first_sentence(text), choices)
        add_run_options(parser)
        self.extend(parser)

        def do(options: Namespace) -> None:
            self.before(options)
            subject = getattr(options, first.name)
            subject = None if optional and subject == "-" else subject
            given = dict(self.defaults(options)) | given_in(options, others)
            places = [given.pop(p.name) for p in others if p.kind is not p.KEYWORD_ONLY]
            self.after(run(self.operation, (subject, *places), options, **given), options)

        parser.set_defaults(command=do)


def entries_of(operation: og.Operation[..., Any]) -> dict[str, tuple[str, str]]:
    """Return the documented type and description of each parameter of an operation.

    "As for `another`." stands for what the other operation says of the same parameter.
    """
    doc = cleandoc(operation.__doc__ or "")
    found: dict[str, tuple[str, str]] = {}
    (section,) = re.findall(r"^Parameters\n-+\n(.*?)\n\n\w+\n-+\n", doc, re.MULTILINE | re.DOTALL)
    for names, kind, text in re.findall(
        r"^(\w[\w, ]*?)(?: : (.*))?\n((?:    .*\n?)+)", section, re.MULTILINE
    ):
        other = re.match(r"As for `(\w+)`", " ".join(text.split()))
        for name in names.split(", "):
            kind_of, text_of = kind, " ".join(text.split())
            if other:
                kind_of, text_of = entries_of(getattr(og, other[1])).get(name, (kind, text_of))
            found[name] = kind or kind_of, text_of
    return found


def first_sentence(text: str) -> str:
    """Return the first sentence of a description, for a line of help."""
    sentence = re.split(r"(?<=[^.]\.)\s", text + " ", maxsplit=1)[0].rstrip(". ")
    return sentence.replace("`", "").replace("%", "%%")


def add_option(
    parser: argparse.ArgumentParser,
    parameter: Parameter,
    kind: str,
    text: str,
    choices: tuple[str, ...] | None = None,
) -> None:
    """Add the option, or the two, of a parameter."""
    flag, needed = "--" + parameter.name.replace("_", "-"), parameter.default is parameter.empty
    annotation = str(parameter.annotation).removesuffix(" | None")
    if "points" in kind:
        where = parser.add_mutually_exclusive_group(required=needed)
        where.add_argument(flag, metavar="FILE", help=f"raster or vector file: {text}")
        where.add_argument(
            *point_flags(parameter.name),
            dest=f"{parameter.name}_points",
            type=float,
            nargs=2,
            action="append",
            metavar=("X", "Y"),
            help="a point; give it again for more",
        )
    elif annotation.startswith("bool"):
        parser.add_argument(flag, action="store_true", default=None, help=text)
    elif annotation == "Graph":
        parser.add_argument(flag, metavar="GRAPH", help=f"store of 'orograph graph read': {text}")
    elif annotation.startswith("Mapping"):
        parser.add_argument(flag, nargs="+", type=_pair, metavar="NAME=NUMBER", help=text)
    elif annotation == "Any":
        parser.add_argument(flag, metavar="FILE", help=f"store or raster file: {text}")
    else:
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


def point_flags(name: str) -> tuple[str, ...]:
    """Return the option by which a point is given: the singular of the parameter."""
    return ("--point", "--source") if name == "sources" else (f"--{name.removesuffix('s')}",)


def _pair(text: str) -> tuple[str, float]:
    """Return a name and a number; argparse says which option is wrong."""
    name, _, number = text.partition("=")
    return name, float(number)


def given_in(options: Namespace, parameters: list[Parameter]) -> dict[str, Any]:
    """Return the arguments that a command line gives, as the operation takes them."""
    given = {}
    for parameter in parameters:
        value = getattr(options, parameter.name)
        points = getattr(options, f"{parameter.name}_points", None)
        if points is not None:
            value = points
        if value is None:
            continue
        if str(parameter.annotation).startswith("Graph"):
            value = og.read_graph(value)
        elif str(parameter.annotation).startswith("Mapping"):
            value = dict(value)
        given[parameter.name] = value
    return given
