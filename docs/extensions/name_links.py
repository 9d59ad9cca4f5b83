"""Links from pages to the reference and back.

In the text of a page the first mention of a public name, such as ``og.zonal``, leads to its page in
the reference; in code, each use does. The page of a name ends with the guides and the scripts of
the gallery whose code uses it.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from run_pages import BLOCK
from sphinx import addnodes
from sphinx.application import Sphinx

import orograph

NAME = re.compile(r"(?:\bog\.|^(?=\w+_))(\w+)")  # without "og." only what no other word can be
USE = re.compile(r"\bog\.(\w+)")
IN_HTML = re.compile(
    r'<span class="n">og</span><span class="o">\.</span><span class="n">(\w+)</span>'
)


def link_text(app: Sphinx, doctree: nodes.document) -> None:
    """Link the first mention of each public name in the text of a page."""
    if app.env.docname.startswith("generated/"):
        return
    linked: set[str] = set()
    for literal in list(doctree.findall(nodes.literal)):
        if isinstance(literal.parent, nodes.title | nodes.reference | addnodes.pending_xref):
            continue
        new = {*NAME.findall(literal.astext())} & {*orograph.__all__} - linked
        if not new:
            continue
        name = min(new)  # of several the others are linked elsewhere
        linked.add(name)
        target = {"refdomain": "py", "reftype": "obj", "reftarget": f"orograph.{name}"}
        reference = addnodes.pending_xref("", literal.deepcopy(), refwarn=True, **target)
        literal.replace_self(reference)


def link_code(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Link public names in the code blocks of a page."""

    def link(match: re.Match[str]) -> str:
        if match[1] not in orograph.__all__:
            return match[0]
        address = app.builder.get_relative_uri(page, f"generated/orograph.{match[1]}")
        return f'<a class="code-link" href="{address}">{match[0]}</a>'

    if "body" in context:
        context["body"] = IN_HTML.sub(link, context["body"])


@cache
def users(source: Path) -> dict[str, list[str]]:
    """Return the pages whose code uses a public name, by name."""
    guides = sorted((source / "guides").glob("*.md"))
    code = {
        f"/guides/{path.stem}": "".join(BLOCK.findall(path.read_text(encoding="utf-8")))
        for path in guides
    }
    for path in sorted((source.parent / "examples/gallery").glob("*.py")):
        code[f"/gallery/{path.stem}"] = path.read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    for page, text in code.items():
        for name in sorted(set(USE.findall(text))):
            found.setdefault(name, []).append(page)
    return found


def list_users(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Add to the docstring of a public name the pages whose code uses it."""
    module, _, name = name.partition(".")
    pages = users(Path(app.srcdir)).get(name, []) if module == "orograph" else []
    if pages:
        lines += ["", ".. rubric:: Used in", "", *(f"- :doc:`{page}`" for page in pages), ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("doctree-read", link_text)
    app.connect("html-page-context", link_code)
    app.connect("autodoc-process-docstring", list_users, priority=600)  # after napoleon
    return {"parallel_read_safe": True}
