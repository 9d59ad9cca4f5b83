"""Compile CUDA files to machine code for every GPU generation that is supported, without a GPU.

NVRTC needs neither a driver nor a device, so a kernel that does not compile is found on any
machine. Usage: ``python .ci/nvrtc.py [--arch 75,80] FILE...``; one line of output a file and
architecture, exit status 1 if any does not compile. What a file is to be compiled with besides its
defaults, it says itself, a line a variant: ``// variant: -DCELL=float -DTHREADS=128``.
"""

from __future__ import annotations

import argparse
import ast
import ctypes
import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path

# Turing (T4), Ampere (A100, then A10 and RTX 30), Hopper (H100, H200), Blackwell (B200, RTX 50).
ARCHITECTURES = (75, 80, 86, 90, 100, 120)
LAUNCHER = Path(__file__).resolve().parents[1] / "kernels" / "device.py"


def options_of_the_launcher() -> tuple[str, ...]:
    """``OPTIONS`` of kernels/device.py; read, since orograph need not be installed here."""
    for node in ast.parse(LAUNCHER.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "OPTIONS":
            return tuple(ast.literal_eval(node.value))
    sys.exit(f"{LAUNCHER} does not say OPTIONS = (...)")


def variants_of(path: Path) -> list[tuple[str, ...]]:
    """The definitions a file is compiled with: none, then those of its own list."""
    lines = re.findall(r"^// variant: (.*)$", path.read_text(), re.MULTILINE)
    return [(), *(tuple(line.split()) for line in lines)]


class Nvrtc:
    """The compiler in the wheels of ``cuda-toolkit[nvrtc,cudart,cccl]``."""

    def __init__(self) -> None:
        spec = find_spec("nvidia")
        locations = spec.submodule_search_locations if spec else None
        roots = [Path(root) for root in locations or ()]
        # CUDA 13 has one folder for all, CUDA 12 one for each part
        libraries = [path for root in roots for path in root.glob("*/lib/libnvrtc.so.*")]
        if not libraries:
            sys.exit("NVRTC is not installed: pip install 'cuda-toolkit[nvrtc,cudart,cccl]==13.*'")
        self._library = ctypes.CDLL(str(libraries[0]))
        found = [path for root in roots for path in root.glob("*/include")]
        self._includes = [folder for path in found for folder in (path, path / "cccl")]

    def compile(
        self, path: Path, architecture: int, defines: tuple[str, ...]
    ) -> tuple[bool, int, str]:
        """Whether ``path`` compiles, the bytes of machine code, and what the compiler said."""
        call, program = self._library, ctypes.c_void_p()
        folders = (path.parent, LAUNCHER.parent, *self._includes)
        options = [f"--gpu-architecture=sm_{architecture}", *options_of_the_launcher(), *defines]
        options += [f"--include-path={folder}" for folder in folders]
        encoded = [option.encode() for option in options]
        source = path.read_bytes()
        call.nvrtcCreateProgram(ctypes.byref(program), source, str(path).encode(), 0, None, None)
        try:
            status = call.nvrtcCompileProgram(
                program, len(encoded), (ctypes.c_char_p * len(encoded))(*encoded)
            )
            length = ctypes.c_size_t()
            call.nvrtcGetProgramLogSize(program, ctypes.byref(length))
            log = ctypes.create_string_buffer(length.value)
            call.nvrtcGetProgramLog(program, log)
            code = ctypes.c_size_t()
            if status == 0:
                call.nvrtcGetCUBINSize(program, ctypes.byref(code))
            return status == 0, code.value, log.value.decode()
        finally:
            call.nvrtcDestroyProgram(ctypes.byref(program))


def main() -> int:
    """Compile the files named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--arch", default=",".join(map(str, ARCHITECTURES)))
    parser.add_argument("--defaults", action="store_true", help="without the variants of files")
    arguments = parser.parse_args()
    compiler, failed = Nvrtc(), False
    for path in arguments.files:
        if not path.is_file():
            parser.error(f"{path}: no such file")
        for architecture in map(int, arguments.arch.split(",")):
            for defines in variants_of(path)[: 1 if arguments.defaults else None]:
                begin = time.perf_counter()
                compiled, size, log = compiler.compile(path, architecture, defines)
                took = time.perf_counter() - begin
                said = f"{size} bytes, {took:.2f} s" if compiled else "does not compile"
                print(f"{' '.join([str(path), *defines])} sm_{architecture}: {said}")
                if log.strip():
                    print(log.rstrip())
                failed = failed or not compiled
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
