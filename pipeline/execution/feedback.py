"""Feedback while a call runs: a notice that kernels are compiled, and progress bars."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cache
from html import escape
from importlib import import_module
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from orograph.execution.settings import setting
from orograph.tiles import html

if TYPE_CHECKING:
    from orograph.execution.run import Progress

SECONDS_OF_SILENCE = 2.0
REFRESH_SECONDS = 0.25


class _Compilations:
    """Listener to Numba's compilations, which prints a notice once in a process."""

    def __init__(self) -> None:
        self.running = 0
        self._said = False

    def on_start(self, event: Any) -> None:
        self.running += 1
        if not self._said and setting("progress") is not False:
            self._said = True
            dtype = _first_dtype(event.data["args"])
            print(
                f"orograph: compiling kernels{f' for {dtype}' if dtype else ''}, once for each "
                "operation and dtype (`orograph compile` does it beforehand)",
                file=sys.stderr,
                flush=True,
            )

    def on_end(self, event: Any) -> None:
        self.running -= 1


def _first_dtype(kinds: Iterable[Any]) -> str:
    """Return the dtype of the first array among Numba argument types, or "" if there is none.

    The first kernel reads the raster. Arrays may stand in tuples, such as those of a tile's state.
    """
    for kind in kinds:
        if hasattr(kind, "ndim"):
            return str(kind.dtype)
        found = _first_dtype(getattr(kind, "types", ()))
        if found:
            return found
    return ""


@cache
def compilations() -> _Compilations:
    """Return this process's listener to Numba's compilations, registering it once."""
    from numba.core import event

    class Listener(_Compilations, event.Listener):
        """`_Compilations` as a subclass of Numba's listener, which Numba requires."""

    listener = Listener()
    event.register("numba:compile", listener)  # type: ignore[no-untyped-call]
    return listener


def shows_progress() -> bool:
    """Return whether to show a progress bar: by the setting, else on terminals and notebooks."""
    chosen = setting("progress")
    if chosen != "auto":
        return bool(chosen)
    return sys.stderr.isatty() or in_notebook()


def in_notebook() -> bool:
    """Return whether this process is a Jupyter kernel."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def show_progress(progress: Callable[[], Progress], ended: Event) -> None:
    """Show a progress bar until a run has ended; ``progress()`` returns its progress."""
    if in_notebook():
        show_live(lambda: _line(progress()), ended, REFRESH_SECONDS, wait=True)
        return
    from tqdm import tqdm

    with tqdm(desc="orograph", unit="task", leave=False) as bar:
        going = True
        while going:
            going = not ended.wait(REFRESH_SECONDS)
            now = progress()
            bar.total = now.total or None
            bar.set_postfix_str(now.waiting, refresh=False)
            bar.update(now.done - bar.n)
            bar.refresh()


def _line(progress: Progress) -> str:
    """Return the HTML progress line that a notebook shows while a call waits."""
    return f"orograph {html.bar(progress.done, progress.total)} {escape(progress.waiting)}"


def show_live(
    text: Callable[[], str], ended: Event, seconds: float = 1.0, *, wait: bool = False
) -> None:
    """Show HTML in a notebook, updating it until a run has ended.

    It is one output, which is replaced, so that a saved notebook has the last alone. With ``wait``
    the call returns when the run has ended.
    """
    shown = import_module("IPython.display")
    handle = shown.display(shown.HTML(text()), display_id=True)

    def keep() -> None:
        going = True
        while going:
            going = not ended.wait(seconds)
            handle.update(shown.HTML(text()))

    if wait:
        keep()
    elif not ended.is_set():
        Thread(target=keep, name="orograph-display", daemon=True).start()
