"""The help of each command, from the parsers of the command line: ``{commands}``."""

from __future__ import annotations

import os
from typing import Any
from unittest.mock import patch

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from orograph.cli.main import _parser
from orograph.cli.parser import subcommands


class Commands(SphinxDirective):
    """A section for each command, with what its ``--help`` prints."""

    def run(self) -> list[nodes.Node]:
        """Return the sections."""
        parser = _parser()
        sections: list[nodes.Node] = []
        for name, command in sorted(subcommands(parser)):
            title = nodes.title(text=f"{parser.prog} {name}")
            section = nodes.section("", title, ids=[nodes.make_id(name)])
            with patch.dict(os.environ, COLUMNS="92", NO_COLOR="1"):  # argparse reads both
                section += nodes.literal_block(text=command.format_help(), language="text")
            sections.append(section)
        return sections


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
