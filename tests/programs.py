"""Run Python programs in processes that are forked from one that has imported what they need.

To them it is as if ``python -c`` had started them, but for the seconds of their imports.
"""

from __future__ import annotations

import json
import os
import sys
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

# Of programs and of workers; the process that is forked starts with the first of them.
IMPORTED = (
    *("distributed.nanny", "geopandas", "matplotlib.pyplot", "pandas", "pyogrio", "rasterio"),
    *("rioxarray", "zarr.codecs", "orograph.components.components", "orograph.forest.forest"),
    *("orograph.graphs.dense_paths.all_pairs", "orograph.distance.cost_distance"),
    *("orograph.engines.frontier.driver", "orograph.graphs.shortest_paths"),
    *("orograph.index.build", "orograph.operations.plan", "orograph.plotting.plot"),
    *("orograph.reachability.is_connected", "orograph.terrain.depressions"),
)


def run_script(script: Path, folder: Path, *arguments: object) -> Any:
    """Run a script in a folder, as `run_program` does; return the JSON that it printed last."""
    said = run_program(script.read_text(encoding="utf-8"), script, folder, *arguments)
    return json.loads(said.splitlines()[-1])


def run_program(text: str, file: Path, folder: Path, *arguments: object) -> str:
    """Run a program, whose text is that of a file, in a folder; return what it printed.

    Raises
    ------
    AssertionError
        If its exit status is not 0.
    """
    printed = folder / "printed.txt"
    process = start_program(text, file, folder, printed, *arguments)
    process.join()
    said = printed.read_text(encoding="utf-8")
    assert process.exitcode == 0, f"exit status {process.exitcode}\n{said}"
    return said


def start_program(
    text: str, file: Path, folder: Path, printed: Path, *arguments: object
) -> BaseProcess:
    """Start a program in a folder; it prints into a file, and leads a process group of its own."""
    told = text, str(file), folder, printed, [str(argument) for argument in arguments]
    process = get_context("forkserver").Process(target=_run, args=told)
    process.start()
    return process


def _run(text: str, file: str, folder: Path, printed: Path, arguments: list[str]) -> None:
    os.setsid()
    with printed.open("wb") as target:
        for descriptor in (1, 2):
            os.dup2(target.fileno(), descriptor)
    os.chdir(folder)
    sys.path.insert(0, "")
    sys.argv = ["-c", *arguments]
    main = sys.modules["__main__"] = ModuleType("__main__")
    exec(compile(text, file, "exec", dont_inherit=True), main.__dict__)
