"""The package with the changes of a page of the documentation, as a copy."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from programs import run_program

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
    without = shutil.ignore_patterns("*.nb[ic]")  # bytecode of what is not changed serves
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


# In a process that has imported Numba, and orograph from elsewhere.
FROM_COPY = """
import json, os, sys
import numba
folder, variables = sys.argv[1:3]
del sys.argv[1:3]
sys.dont_write_bytecode = True  # Python looks at seconds and sizes to see whether it is fresh
sys.path.insert(0, folder)
os.environ.update(json.loads(variables))
numba.config.reload_config()
for name in list(sys.modules):
    if name.partition(".")[0] == "orograph":
        del sys.modules[name]
import orograph
assert orograph.__file__.startswith(folder)
"""


def run_in_copy(folder: Path, code: str, *arguments: str, **variables: str) -> str:
    """Run Python code with the package that was copied into a folder; return what it printed.

    ``variables`` are of the environment, beside the place of its cache of kernels.
    """
    told = json.dumps({"NUMBA_CACHE_DIR": str(folder / "cache"), **variables})
    return run_program(FROM_COPY + code, folder / "code.py", folder, folder, told, *arguments)
