"""GRASS r.cost as a peer: seconds of the module alone, import and export not counted."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

GRASS = "grass"

# Runs inside a session of GRASS, with arguments: folder, rows, columns, row and column of the start
SESSION = """
import subprocess, sys, time
folder, rows, columns, row, column = sys.argv[1], *map(int, sys.argv[2:])
def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
edges = [f"north={rows}", "south=0", f"east={columns}", "west=0"]
run("r.in.bin", "-d", f"input={folder}/friction.bin", "output=friction", "bytes=8", *edges,
    f"rows={rows}", f"cols={columns}", "anull=-1")
run("g.region", "raster=friction")
start = f"start_coordinates={column + 0.5},{rows - row - 0.5}"
begin = time.perf_counter()
run("r.cost", "input=friction", "output=cost", start, "memory=8000")
spent = time.perf_counter() - begin
run("r.out.bin", "input=cost", f"output={folder}/cost.bin", "bytes=8", "null=-1")
print(spent)
"""


def r_cost(friction: np.ndarray, start: tuple[int, int]) -> tuple[float, np.ndarray]:
    """Seconds, and the cost from a cell (row, column), NaN where unreached; cells of size 1."""
    rows, columns = friction.shape
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.where(np.isnan(friction), -1, friction).astype("<f8").tofile(folder / "friction.bin")
        (folder / "session.py").write_text(SESSION)
        words = [sys.executable, folder / "session.py", folder, rows, columns, *start]
        done = subprocess.run(
            [GRASS, "--tmp-location", "XY", "--exec", *map(str, words)],
            check=True,
            capture_output=True,
            text=True,
        )
        cost = np.fromfile(folder / "cost.bin", "<f8").reshape(rows, columns)
    return float(done.stdout.split()[-1]), np.where(cost < 0, np.nan, cost)
