"""A plugin of pytest: processor seconds of the tests by file and by what they go to.

``make test-costs`` loads it; after ``make clean``, or without ``.numba_cache``, it counts what an
empty cache costs. It counts the processes of pytest and all that descend from them: the workers of
clusters and the programs that are forked, and what these start.

- compile: Numba, in any process. The table ends with the number of signatures.
- C++: compilers that the emulator of CUDA starts.
- clusters: starting and closing them, and workers until they are ready.
- programs: processes that are forked or started to run a program, but for what they compile.
- imports: in pytest's processes, and in the one that others are forked from.
- work: all else in pytest's processes.
- children: all else in other processes, which is the work of workers, and processes that were
  killed or did not load this plugin.
"""

from __future__ import annotations

import _frozen_importlib  # type: ignore[import-not-found]
import functools
import json
import os
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import distributed
import programs
import psutil
import pytest
from distributed.deploy.cluster import Cluster
from distributed.deploy.spec import SpecCluster
from numba.core import event

CAUSES = ("compile", "C++", "clusters", "programs", "imports", "work", "children")
OF_CHILDREN = ("C++", "programs")  # whatever process tells of them
LOG = "TEST_COSTS_LOG"  # variable of the environment: the file in which children tell theirs
BEFORE = "(imports and collection)"

spans = threading.local()
pid = 0  # of the process of pytest
told: list[tuple[str, float, str]] = []  # cause, seconds and signature, in that process


def tell(cause: str, seconds: float, signature: str = "") -> None:
    """Count seconds; in a child, for the process of pytest to read."""
    if os.getpid() == pid:
        told.append((cause, seconds, signature))
    elif LOG in os.environ:
        with open(os.environ[LOG], "a", encoding="utf-8") as log:
            log.write(json.dumps((cause, seconds, signature)) + "\n")


@contextmanager
def span(cause: str, clock: Callable[[], float], signature: str = "") -> Iterator[None]:
    """Count the seconds of a block, without those of spans within it."""
    outer, spans.inner = getattr(spans, "inner", 0.0), 0.0
    begin = clock()
    try:
        yield
    finally:
        seconds = clock() - begin
        tell(cause, max(seconds - spans.inner, 0.0), signature)
        spans.inner = outer + seconds


def counted(cause: str, clock: Callable[[], float], function: Any) -> Any:
    """Return a function whose seconds count for a cause."""

    @functools.wraps(function)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        with span(cause, clock):
            return function(*arguments, **options)

    return wrapper


class Compilation(event.Listener):
    """Count what Numba compiles, and each signature."""

    def __init__(self) -> None:
        self.open: list[Any] = []  # under Numba's lock

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        name = f"{function.__module__}.{function.__qualname__}{event.data['args']}"
        self.open.append(span("compile", time.thread_time, name))
        self.open[-1].__enter__()

    def on_end(self, event: Any) -> None:
        self.open.pop().__exit__(None, None, None)


def ended_children() -> float:
    """Return the processor seconds of ended children."""
    times = os.times()
    return times.children_user + times.children_system


def run_process(*arguments: Any, **options: Any) -> Any:
    """Run a process as `subprocess.run` does, and count its seconds."""
    command = arguments[0] if arguments else options.get("args", "")
    first = command if isinstance(command, str) else str(command[0])
    compilers = ("g++", "clang++", os.environ.get("CXX") or "g++")
    begin = ended_children()
    try:
        return start_process(*arguments, **options)
    finally:
        tell("C++" if first.endswith(compilers) else "programs", ended_children() - begin)


async def start_worker(worker: Any) -> Any:
    """Start a worker, and count the seconds of a process that was forked for it."""
    started = await begin_worker(worker)
    if os.getpid() != pid:
        tell("clusters", time.process_time())
    return started


find_module = _frozen_importlib._find_and_load
event.register("numba:compile", Compilation())
start_process, subprocess.run = subprocess.run, run_process  # type: ignore[assignment]
begin_worker, distributed.Worker.start_unsafe = distributed.Worker.start_unsafe, start_worker
SpecCluster.__init__ = counted("clusters", time.process_time, SpecCluster.__init__)
Cluster.close = counted("clusters", time.process_time, Cluster.close)
programs._run = counted("programs", time.process_time, programs._run)
programs.IMPORTED = (*programs.IMPORTED, __name__)  # last, when the others have been imported
tell("imports", time.process_time())  # of the process that others are forked from


def all_seconds() -> float:
    """Return the processor seconds of this process and all its descendants, ended or not."""
    total = 0.0
    process = psutil.Process()
    for each in (process, *process.children(recursive=True)):
        try:
            times = each.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


class Costs:
    """Seconds of the files of tests of a process."""

    def __init__(self) -> None:
        self.rows: dict[str, Counter[str]] = {}
        self.signatures: list[str] = []
        self.log = open(os.environ[LOG], encoding="utf-8")  # noqa: SIM115
        self.file = BEFORE
        self.wall, self.own, self.all = time.time() - time.process_time(), 0.0, 0.0

    def close_file(self) -> None:
        """Count what was spent since the last call for the file."""
        wall, own, every = time.time(), time.process_time(), all_seconds()
        row = self.rows.setdefault(self.file, Counter())
        row["wall"] += wall - self.wall
        mine = sum(seconds for cause, seconds, _ in told if cause not in OF_CHILDREN)
        lines, told[:] = [*told, *map(json.loads, self.log)], []
        for cause, seconds, signature in lines:
            row[cause] += seconds
            if signature:
                self.signatures.append(signature)
        row["work"] += own - self.own - mine
        row["all"] += every - self.all
        self.wall, self.own, self.all = wall, own, every


costs: list[Costs] = []  # of this process
of_all: list[tuple[dict[str, Counter[str]], list[str]]] = []  # of all processes of pytest


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count, unless other processes run the tests."""
    global pid
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        return
    pid = os.getpid()
    os.environ[LOG] = tempfile.mkstemp(prefix="orograph-costs-")[1]
    _frozen_importlib._find_and_load = counted("imports", time.thread_time, find_module)
    costs.append(Costs())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Count the tests of a file."""
    (current,) = costs
    file = item.nodeid.partition("::")[0]
    if file != current.file:
        current.close_file()
        current.file = file
    current.rows.setdefault(file, Counter())["tests"] += 1
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the process that prints."""
    for current in costs:
        current.close_file()
        Path(os.environ.pop(LOG)).unlink()
        of_all.append((current.rows, current.signatures))
        if hasattr(session.config, "workeroutput"):
            rows = {file: dict(row) for file, row in current.rows.items()}  # as xdist sends them
            session.config.workeroutput["costs"] = rows, current.signatures


def pytest_unconfigure() -> None:
    """Import as before, while Python takes itself apart."""
    _frozen_importlib._find_and_load = find_module


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a process of xdist counted."""
    if "costs" in getattr(node, "workeroutput", {}):
        rows, signatures = node.workeroutput["costs"]
        of_all.append(({file: Counter(row) for file, row in rows.items()}, signatures))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print a row for each file, those that took most first."""
    rows: dict[str, Counter[str]] = {}
    signatures: Counter[str] = Counter()
    for part, names in of_all:
        signatures.update(names)
        for file, row in part.items():
            rows.setdefault(file, Counter()).update(row)
    for row in rows.values():
        row["children"] = row["all"] - sum(row[cause] for cause in CAUSES)
    columns = ("tests", "wall", "all", *CAUSES)
    write = terminalreporter.write_line
    terminalreporter.section("processor seconds")
    write("".join(f"{name:>9}" for name in columns))
    total: Counter[str] = Counter()
    for file, row in sorted(rows.items(), key=lambda item: -item[1]["all"]):
        total.update(row)
        write("".join(f"{row[name]:9.0f}" for name in columns) + f"  {file}")
    write("".join(f"{total[name]:9.0f}" for name in columns) + "  sum")
    write(f"{len(signatures)} signatures compiled, {signatures.total()} times in all")
