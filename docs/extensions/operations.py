"""Reference pages of operations, which autodoc would show as data.

An operation is documented as the function that it is called as. The options of its run, which all
operations share, are folded.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.ext.autodoc import FunctionDocumenter

from orograph import Operation
from orograph.run.options import RunSpec


class OperationDocumenter(FunctionDocumenter):
    """The page of an operation: its signature and docstring."""

    objtype = "operation"
    directivetype = "function"
    priority = FunctionDocumenter.priority + 1

    @classmethod
    def can_document_member(cls, member: Any, membername: str, isattr: bool, parent: Any) -> bool:
        """Return whether a member is an operation."""
        return isinstance(member, Operation)


def fold_run_options(app: Sphinx, domain: str, objtype: str, content: nodes.Element) -> None:
    """Put the options of a run, which are its other parameters, into an element that opens."""
    if app.builder.format != "html":
        return
    for field in list(content.findall(nodes.field)):
        name, body = field.children
        if name.astext() == RunSpec.heading:
            summary = "<details><summary>Options of the run</summary>"
            body.insert(0, nodes.raw("", summary, format="html"))
            body.append(nodes.raw("", "</details>", format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_autodocumenter(OperationDocumenter)
    app.connect("object-description-transform", fold_run_options)
    return {"parallel_read_safe": True}
