"""Lists of public names on the page of the API, each with its page: ``.. names:: flow drainage``.

The names are those that ``orograph/__init__.pyi`` takes from some folders or modules.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError
from sphinx.ext.autosummary import Autosummary

import orograph

LIST = re.compile(r"^\.\. names:: (.+)$", re.MULTILINE)
EXPORT = re.compile(r"^from \.(\S+) import \w+ as (\w+)$", re.MULTILINE)


def names_in(folders: str) -> list[str]:
    """Return the public names of some folders or modules, which spaces separate."""
    exports = Path(orograph.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    return [
        name
        for module, name in EXPORT.findall(exports)
        if any(f"{module}.".startswith(f"{folder}.") for folder in folders.split())
    ]


class Names(Autosummary):
    """The names of some folders, with the first lines of their docstrings.

    In Markdown only inside ``{eval-rst}``: Autosummary writes its table in reStructuredText.
    """

    required_arguments = 1
    final_argument_whitespace = True
    has_content = False
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """Return the list."""
        self.options = {"toctree": "generated", "nosignatures": None}
        self.content = StringList([f"~orograph.{name}" for name in names_in(self.arguments[0])])
        return super().run()


def write_pages(app: Sphinx, config: Config) -> None:
    """Let autosummary write a page for each public name; raise if a name is in no list or two."""
    page = Path(app.srcdir, "api.md").read_text(encoding="utf-8")
    names = [name for folders in LIST.findall(page) for name in names_in(folders)]
    if sorted(names) != sorted(orograph.__all__):
        wrong = {name for name in orograph.__all__ if names.count(name) != 1}
        raise ExtensionError(f"api.md: {', '.join(sorted(wrong))}: not in one of the lists")
    lists = Path(app.doctreedir, "names.rst")
    lists.parent.mkdir(parents=True, exist_ok=True)
    lines = [f".. autosummary::\n   :toctree: {Path(app.srcdir, 'generated')}\n"]
    lists.write_text("\n   ".join([*lines, *(f"orograph.{n}" for n in names), ""]), "utf-8")
    config["autosummary_generate"] = [str(lists)]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("names", Names)
    app.connect("config-inited", write_pages)
    return {"parallel_read_safe": True}
