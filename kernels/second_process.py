"""A second process that compiles some kernels while this one compiles others.

Numba compiles under a lock of the process, so threads gain nothing. Both processes write to the
cache on disk, so what either has compiled the other loads. The second process is a Python of its
own, as a fork of a process with threads could hang. It ends with this process, for then its input
ends, and it says nothing. If it fails, this process compiles all.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numba import config

from orograph.kernels.compiled import of_thread

SECONDS_BETWEEN_LOOKS = 0.02
CODE = """
import os, sys, threading
sys.path[:] = {path!r}
threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
from {module} import {function}
{function}(*{arguments!r})
os._exit(0)
"""


class _Helper:
    """The second process: which kernels it compiles, and by which code."""

    def __init__(self, kernels: Sequence[Any], code: str) -> None:
        self.kernels = {kernel.py_func for kernel in kernels}
        self.code = code
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, unless it was started before."""
        if self.process is None:
            cache = getattr(config, "CACHE_DIR", "")
            folder = {"NUMBA_CACHE_DIR": cache} if cache else {}
            self.process = subprocess.Popen(
                [sys.executable, "-c", self.code],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **folder},
            )

    def wait_for(self, load: Callable[[], Any]) -> Any:
        """Wait until ``load`` finds something; return None if the process ends before."""
        found = None
        while found is None and self.process is not None:
            ended = self.process.poll() is not None
            found = load()
            if found is None and ended:
                break
            if found is None:
                time.sleep(SECONDS_BETWEEN_LOOKS)
        return found

    def load(self, kernel: Any, load: Callable[[], Any]) -> Any:
        """Return a kernel from the cache, waiting for the second process if it compiles it.

        The process starts when this one has to compile a kernel that is not its own.
        """
        found = load()
        if found is None and kernel in self.kernels:
            return self.wait_for(load)
        if found is None:
            self.start()
        return found

    def end(self) -> None:
        """Stop it; what it has not compiled by now is not needed."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()


@contextmanager
def compiled_beside(
    kernels: Sequence[Any], function: Callable[..., None], arguments: Sequence[str | int]
) -> Iterator[None]:
    """Have a second process compile kernels, from when this thread has to compile another one.

    Parameters
    ----------
    kernels
        Compiled functions, those that this thread calls last.
    function, arguments
        The call that compiles them there: a function of a module.
    """
    if not _may_help():
        yield
        return
    module, name = function.__module__, function.__name__
    code = CODE.format(path=sys.path, module=module, function=name, arguments=arguments)
    helper = _Helper(kernels, code)
    of_thread.load_with_help = helper.load
    try:
        yield
    finally:
        of_thread.load_with_help = None
        helper.end()


def _may_help() -> bool:
    """Return whether a processor is free, and a process may be started."""
    cores = len(os.sched_getaffinity(0))
    return (
        cores > 1
        and os.getloadavg()[0] < cores
        and not multiprocessing.current_process().daemon  # such as a worker of a cluster
        and Path(sys.executable or "").name.startswith("python")
    )
