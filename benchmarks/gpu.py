"""CUDA kernels on a real GPU: bits against the Numba kernels, speed, whole runs.

    python benchmarks/gpu.py                        # all kernels, all sections
    python benchmarks/gpu.py labels --only bits speed --side 8192 --bits-side 4096

A kernel's sections are functions of a file gpu_<kernel>.py beside this one: ``bits(side)`` raises
where a value is not the Numba kernel's, ``speed(side)`` times the device alone, on data that it
holds, and ``run(side)`` times calls of orograph. They print lines; this file finds them, names the
machine, goes on after a failure, and ends with status 1 if there was one. Where orograph is not
installed, it is imported from the folders of this tree.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import traceback
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SECTIONS = ("bits", "speed", "run")
KERNELS = sorted(path.stem.removeprefix("gpu_") for path in HERE.glob("gpu_*.py"))


def import_from_the_tree(folder: Path) -> None:
    """Let Python find orograph in this tree, by the links of ``src``."""
    metadata = folder / "orograph-0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: orograph\nVersion: 0\n")
    sys.path[:0] = [str(folder), str(ROOT / "src")]


def tell_the_machine() -> None:
    """Print the GPU and the versions that matter."""
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    driver, compiler = cupy.cuda.runtime.driverGetVersion(), cupy.cuda.nvrtc.getVersion()
    print(
        f"{properties['name'].decode()}, {properties['multiProcessorCount']} multiprocessors, "
        f"driver {driver}, NVRTC {'.'.join(map(str, compiler))}, CuPy {cupy.__version__}",
        flush=True,
    )


def main() -> int:
    """Run the sections that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kernels", nargs="*", metavar="kernel", help=", ".join(KERNELS))
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--side", type=int, default=8192, help="cells a side, for speed and run")
    parser.add_argument("--bits-side", type=int, default=4096, help="the same for bits")
    options = parser.parse_args()
    unknown = set(options.kernels) - set(KERNELS)
    if unknown:
        parser.error(f"no gpu_{unknown.pop()}.py; there are {', '.join(KERNELS)}")
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(folder, "numba")))
        if find_spec("orograph") is None:
            import_from_the_tree(Path(folder))
        tell_the_machine()
        for name in options.kernels or KERNELS:
            module = importlib.import_module(f"gpu_{name}")
            for section in options.only:
                function = getattr(module, section, None)
                if function is None:
                    continue
                print(f"--- {name}, {section}", flush=True)
                try:
                    function(options.bits_side if section == "bits" else options.side)
                except Exception:
                    traceback.print_exc(file=sys.stdout)
                    failed.append(f"{name}, {section}")
    print("failed: " + "; ".join(failed) if failed else "all sections done", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
