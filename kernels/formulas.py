"""Formulas that are files of a folder: found by name, and called by compiled code by number.

A formula is two files: ``name.py`` holds its row, with a compiled function, and ``name.cuh`` the
CUDA function of that name, with the same expressions. A number is the place of a row in its table
and is not written in any file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils


def rows_in(package: str, folder: Path, kind: type) -> dict[str, Any]:
    """Return the rows of a folder's modules by their names, in alphabetical order.

    The row of a module is the value of type ``kind`` among its names.
    """
    found = {}
    # Sorted, so that numbers do not depend on the order in which modules are found.
    for name in sorted(module.name for module in iter_modules([str(folder)])):
        for value in vars(import_module(f"{package}.{name}")).values():
            if isinstance(value, kind):
                found[name] = value
    return found


def typed_calls(
    typingctx: Any, formulas: Iterable[tuple[int, Any, tuple[Any, ...]]]
) -> list[tuple[int, Any, Any]]:
    """Return numbers, types and signatures of compiled functions of (number, function, types)."""
    calls = []
    for number, function, arguments in formulas:
        kind = types.Dispatcher(function)
        calls.append((number, kind, kind.get_call_type(typingctx, arguments, {})))
    return calls


def emit_call(
    context: Any,
    builder: Any,
    number: Any,
    calls: Iterable[tuple[int, Any, Any]],
    arguments: Callable[[int], tuple[Any, ...]],
) -> Any:
    """Emit the call of the function of a number, known at run time.

    Return its result; NaN if no function has the number, or if they return nothing. ``arguments``
    emits what the function of a number takes.
    """
    found = cgutils.alloca_once_value(builder, ir.Constant(ir.DoubleType(), math.nan))
    # A chain of comparisons with direct calls: LLVM may inline what it could not through a pointer.
    for own, kind, signature in calls:
        with builder.if_then(builder.icmp_signed("==", number, number.type(own))):
            function = context.get_function(kind, signature)
            # The caller's machine code is linked with that of what it calls.
            for library in function.libs:
                context.active_code_library.add_linking_library(library)
            result = function(builder, arguments(own))
            if signature.return_type is not types.none:
                builder.store(result, found)
    return builder.load(found)
