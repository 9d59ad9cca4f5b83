"""Argument parser whose errors are one line, naming arguments as command-line options."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Sequence
from typing import Any, NoReturn


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
        """Parse arguments; report an unknown option before a missing argument."""
        if self._subparsers is None:  # else the words are those of a command
            self._refuse_unknown(args or [])
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
                begun = [option for option in options if option.startswith(name)]
                near = begun[:1] or difflib.get_close_matches(name, options, n=1)
                self.error(f"{name}: unknown" + "".join(f"; did you mean {o}?" for o in near))

    def in_shell(self, message: str) -> str:
        """Replace argument names in a message by the command-line options they stand for."""

        def option(name: str) -> str | None:
            flag = "--" + name.replace("_", "-")
            return flag if flag in self._option_string_actions else None

        def switched_off(name: str) -> str | None:
            """Return the option that sets an argument to False, or None."""
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

        message = re.sub(r"^(\w+)(?=: )", lambda match: option(match[1]) or match[0], message)
        return re.sub(r"\b([a-z_]+)=('[^']*'|[\w.-]*\w|)", value, message)
