"""Feedback while a call runs: its progress, a notice that kernels are compiled, progress bars."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib import import_module
from threading import Event, Thread
from typing import Any

from orograph.arguments.settings import setting
from orograph.tiles import html

SECONDS_OF_SILENCE = 2.0
REFRESH_SECONDS = 0.25


@dataclass(frozen=True)
class Progress:
    """Progress of a run, as the number of tasks done and in total.

    Attributes
    ----------
    done, total
        Number of finished tasks, and of all tasks.
    waiting
        Why the run makes no progress: no worker of the cluster is active, or kernels are being
        compiled; otherwise empty.
    phase
        The current phase, such as ``"cost-distance"`` or ``"publishing"``.
    rate
        Tasks per second in this phase; 0 if not known yet.
    eta
        Seconds until the phase ends at this rate; nan if not known.

    Examples
    --------
    >>> import orograph as og
    >>> print(og.Progress(3, 12))
    3 of 12 tasks
    """

    done: int
    total: int
    waiting: str = field(default="", kw_only=True)
    phase: str = field(default="", kw_only=True)
    rate: float = field(default=0.0, kw_only=True)
    eta: float = field(default=math.nan, kw_only=True)

    def _repr_html_(self) -> str:
        return f"<div>{html.bar(self.done, self.total)} {escape(self.waiting)}</div>"

    def __str__(self) -> str:
        text = f"{self.phase}: {self._amount()}" if self.phase else self._amount()
        if self.rate:
            text += f", {self.rate:.3g} a second"
        if not math.isnan(self.eta):
            text += f", about {duration(self.eta)} left"
        return f"{text}; waiting: {self.waiting}" if self.waiting else text

    def _amount(self) -> str:
        return f"{self.done} of {self.total} tasks"


def duration(seconds: float) -> str:
    """Return a number of seconds in readable form.

    Examples
    --------
    >>> duration(7.4), duration(190), duration(7300)
    ('7 s', '3 min 10 s', '2 h 1 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class _Compilations:
    """Listener to Numba's compilations, which prints a notice once in a process."""

    def __init__(self) -> None:
        self.running = 0
        self._said = False

    def on_start(self, event: Any) -> None:
        self.running += 1
        if not self._said and setting("progress") is not False:
            self._said = True
            print(
                "orograph: compiling kernels, once for each operation and dtype "
                "(`orograph compile` does it beforehand)",
                file=sys.stderr,
                flush=True,
            )

    def on_end(self, event: Any) -> None:
        self.running -= 1


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
            # Once more after the end, so that what is shown last is the end.
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
