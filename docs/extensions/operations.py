"""Reference pages of operations, which autodoc would show as data.

An operation is documented as the function that it is called as.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx
from sphinx.ext.autodoc import FunctionDocumenter

from orograph import Operation


class OperationDocumenter(FunctionDocumenter):
    """The page of an operation: its signature and docstring."""

    objtype = "operation"
    directivetype = "function"
    priority = FunctionDocumenter.priority + 1

    @classmethod
    def can_document_member(cls, member: Any, membername: str, isattr: bool, parent: Any) -> bool:
        """Return whether a member is an operation."""
        return isinstance(member, Operation)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_autodocumenter(OperationDocumenter)
    return {"parallel_read_safe": True}
