"""The package with the changes of a page of the documentation, as a copy."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEW_FILE = re.compile(r"^```(?:python|cpp) title=(\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
DIFF = re.compile(r"^```diff\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^--- (\S+)\n\+\+\+ \1\n", re.MULTILINE)


def section_of(page: Path, title: str) -> str:
    """Return the text under a heading of the second level."""
    parts = re.split(r"^## (.*)\n", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return parts[parts.index(title) + 1]


def copy_with_changes(text: str, folder: Path) -> set[str]:
    """Copy the package into a folder, make the changes that a text shows, and return its files.

    A block ``python title=PATH`` or ``cpp title=PATH`` is a new file. A block ``diff`` changes
    files; before each hunk stands ``@@``, without line numbers, so the lines that it replaces must
    be in the file once.
    """
    package = folder / "orograph"
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src/orograph", package, ignore=without)

    changed = set()
    for name, code in NEW_FILE.findall(text):
        path = package / name.removeprefix("pipeline/")
        assert not path.exists(), f"{name} is there already"
        path.write_text(code, encoding="utf-8")
        changed.add(name)
    for diff in DIFF.findall(text):
        parts = FILE.split(diff)[1:]
        for name, hunks in zip(parts[::2], parts[1::2], strict=True):
            path = package / name.removeprefix("pipeline/")
            content = path.read_text(encoding="utf-8")
            for hunk in hunks.split("@@\n")[1:]:
                lines = hunk.splitlines(keepends=True)
                old = "".join(line[1:] for line in lines if line[0] != "+")
                new = "".join(line[1:] for line in lines if line[0] != "-")
                assert content.count(old) == 1, f"{name} has {content.count(old)} times {old}"
                content = content.replace(old, new)
            path.write_text(content, encoding="utf-8")
            changed.add(name)
    return changed


def run_in_copy(folder: Path, code: str, *arguments: str) -> str:
    """Run Python code with the package that was copied into a folder; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "NUMBA_CACHE_DIR": str(folder / "cache"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}"
    return done.stdout
