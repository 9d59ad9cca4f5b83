"""Check arguments and convert each to the one type that the code works with.

So ``np.float64`` and ``"float64"``, or ``np.int64(8)`` and ``8``, are the same afterwards. Messages
have one form: the argument, its value, the bound, the next step.
"""

from __future__ import annotations

import difflib
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from numbers import Integral, Real
from pathlib import Path
from reprlib import Repr
from typing import Any, TypeGuard, TypeVar

import numpy as np

from orograph.tiles.addresses import has_user, without_secrets
from orograph.tiles.errors import InputError, StoreExistsError

_Choice = TypeVar("_Choice", str, int)

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 100


def shown(value: object) -> str:
    """Return the repr of a value on one short line, for error messages."""
    value = without_secrets(value) if isinstance(value, str) else value
    if isinstance(value, np.ndarray) and not value.size:
        return "an empty array"
    try:
        return " ".join(_SHORT.repr(value).split())
    except Exception:  # the repr of another library's class
        return f"an object of type {type(value).__name__}"


def as_text(number: float) -> str:
    """Return a number with the digits that tell it from any other, and no more."""
    text = f"{number:.10g}"
    return text if float(text) == number else repr(float(number))


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a real number, including NaN and infinity but not bool."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether a value is a whole number, but not bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def as_plain(value: object) -> Any:
    """Convert an array to a list or a Python scalar; return other values unchanged."""
    try:
        return np.asarray(value).tolist() if hasattr(value, "__array__") else value
    except TypeError:  # a Dataset of xarray
        return value


def check_flag(name: str, value: object) -> bool:
    """Return the value if it is True or False, else raise InputError."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name}: {shown(value)}; it must be True or False")
    return bool(value)


def check_integer(
    name: str, value: object, least: int, most: int | None = None, unit: str = ""
) -> int:
    """Return the value as an int from ``least`` to ``most``, else raise InputError."""
    of = f" of {unit}" if unit else ""
    bound = f", at least {least}" if most is None else f", {least} to {most}"
    if not is_integer(value) or value < least or (most is not None and value > most):
        raise InputError(f"{name}: {shown(value)}; it must be a whole number{of}{bound}")
    return int(value)


def check_number(
    name: str, value: object, least: float = -math.inf, most: float = math.inf, step: str = ""
) -> float:
    """Return the value as a number from ``least`` to ``most``, never NaN.

    It is a float, or a whole number that no float64 is equal to. ``step`` is the next step, for the
    message.
    """
    ends = [f"at least {least:g}" if least > -math.inf else ""]
    ends.append(f"at most {most:g}" if most < math.inf else "")
    bound = ", ".join(["it must be a number", *filter(None, ends)]) + (step and f": {step}")
    number = math.nan
    if is_number(value):
        try:
            number = float(value)
        except OverflowError:
            raise InputError(
                f"{name}: {shown(value)} is beyond {sys.float_info.max:g}, the largest float64; "
                f"{bound}"
            ) from None
    if not least <= number <= most:
        raise InputError(f"{name}: {shown(value)}; {bound}")
    return int(value) if isinstance(value, Integral) and int(value) != number else number


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that begins with ``name``, else the most similar one, or None."""
    names = list(known)
    begun = [known for known in names if known.startswith(name)]
    return next(iter(begun or difflib.get_close_matches(name, names, n=1)), None)


def check_choice(name: str, value: object, known: Sequence[_Choice]) -> _Choice:
    """Return the known value that equals ``value``, else raise InputError."""
    for choice in known:
        # True is equal to 1, but stands for no choice.
        kind = str if isinstance(choice, str) else Integral
        if isinstance(value, kind) and not isinstance(value, bool) and value == choice:
            return choice
    listed = ", ".join(repr(choice) for choice in known)
    raise InputError(f"{name}: {shown(value)} is unknown; use one of {listed}")


def check_dtype(name: str, value: object, known: Sequence[str]) -> str:
    """Return the name of a dtype given as name, type or `numpy.dtype`; it must be known."""
    given = None
    if isinstance(value, str | type | np.dtype):
        # TypeError: not a dtype's class or name; others where it looks like a structure
        with suppress(TypeError, ValueError, SyntaxError):
            given = np.dtype(value).name
    listed = ", ".join(repr(choice) for choice in known)
    if given is None or given not in known:
        raise InputError(f"{name}: {shown(value)} is unknown; use one of {listed}")
    return given


def check_path(name: str, value: object) -> str:
    """Return a path or address as text, else raise InputError."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str):
        raise InputError(f"{name}: {shown(value)}; it must be a path, as a str or a pathlib.Path")
    if not text:
        raise InputError(f"{name}: {text!r} is empty; it must be a path")
    if "\0" in text:
        raise InputError(f"{name}: {shown(text)} has a NUL byte, which no path has; remove it")
    if has_user(text):
        raise InputError(
            f"{name}: an address with a name, password or key before the @, which messages and "
            "reports would repeat; leave it out, and give credentials by storage_options= or the "
            "environment"
        )
    return text


def absolute_path(name: str, value: object) -> str:
    """Return a local path as an absolute path."""
    text = check_path(name, value)
    try:
        return os.path.abspath(text)
    except FileNotFoundError:
        raise InputError(
            f"{name}: {shown(text)} is relative, but the working directory has been removed; "
            "change to another (os.chdir), or give an absolute path"
        ) from None


def check_name_length(path: str, suffix: int) -> None:
    """Raise InputError if a path with ``suffix`` more bytes is too long to be created."""
    folder, name = os.path.split(path)
    try:
        most, longest = os.pathconf(folder, "PC_NAME_MAX"), os.pathconf(folder, "PC_PATH_MAX")
    except (OSError, ValueError):
        # Usual limits of Linux, where the file system does not tell its own.
        most, longest = 255, 4096
    for what, size, room in (("name", name, most), ("path", path, longest)):
        count = len(os.fsencode(size))
        if count > room - suffix:
            raise InputError(
                f"{path}: its {what} has {count} bytes; it must have at most "
                f"{room - suffix}, so that unfinished files fit beside it: choose a shorter one"
            )


def refuse_arguments(what: str, **given: bool) -> None:
    """Raise InputError if an argument is given that does not apply to ``what``."""
    names = [name for name, used in given.items() if used]
    if names:
        raise InputError(f"{names[0]}: of no use for {what}; leave it out")


def check_file(path: Path, overwrite: bool) -> None:
    """Raise an error if a file may not be written at ``path``.

    Raises
    ------
    StoreExistsError
        If a file exists there and ``overwrite`` is false, or something that is not a file.
    InputError
        If there can be none.
    """
    check_name_length(absolute_path("path", path), 0)
    if path.is_dir() or (path.exists() and not path.is_file()):
        raise StoreExistsError(f"{path} exists and is not a file; choose another path")
    if path.exists() and not overwrite:
        raise StoreExistsError(
            f"{path} exists; pass overwrite=True to replace it, or choose another path"
        )
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist; create it first")


def check_outputs(
    outputs: str | Sequence[str], known: tuple[str, ...], argument: str = "outputs"
) -> tuple[str, ...]:
    """Return the requested outputs as a tuple; refuse none and unknown names."""
    given = (outputs,) if isinstance(outputs, str) else outputs
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise InputError(f"{argument}: {shown(outputs)}; give one or more of {', '.join(known)}")
    wanted = tuple(check_choice(argument, name, known) for name in given)
    if not wanted:
        raise InputError(f"{argument}: none; give at least one of {', '.join(known)}")
    return wanted
