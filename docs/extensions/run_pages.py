"""Run the Python of the pages while the site is built, and show what it draws and prints.

The blocks of ``python`` of a page, in order, are one program, run in a folder of its own. The site
shows the pictures that it saves as ``![...](pictures/name.png)``, and below each block what the
block prints. Both are kept in ``docs/pictures``; a page is run again when it is newer than they.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging

PICTURE = re.compile(r"!\[[^\]]*\]\((?:\.\./)*pictures/([\w.-]+)\)")
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
END_OF_BLOCK = "\x1e\n"
OUTPUT = """\n```{{code-block}} text
:class: output

{}
```
"""
log = logging.getLogger(__name__)


def run(page: Path, pictures: Path) -> None:
    """Run the blocks of a page as one program; keep the pictures that it saves and its output."""
    text = page.read_text(encoding="utf-8")
    wanted = [pictures / name for name in PICTURE.findall(text)]
    outputs = outputs_of(page, pictures)
    written = page.stat().st_mtime
    if all(path.exists() and path.stat().st_mtime >= written for path in [*wanted, outputs]):
        return
    log.info("running %s", page.name)
    program = "".join(f"{code}\nprint({END_OF_BLOCK!r}, end='')\n" for code in BLOCK.findall(text))
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            # Unbuffered: a forked worker would print again what waits to be written.
            [sys.executable, "-u", "-c", program],
            cwd=folder,
            # Icechunk writes its warnings to the standard output.
            env={**os.environ, "MPLBACKEND": "agg", "ICECHUNK_LOG": "error"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ExtensionError(f"{page}: its code fails\n{done.stdout}{done.stderr}")
        for path in wanted:
            drawn = Path(folder, path.name)
            if not drawn.exists():
                raise ExtensionError(f"{page}: its code does not save {path.name}")
            shutil.copyfile(drawn, path)
        printed = done.stdout.replace(f"{folder}/", "").split(END_OF_BLOCK)[:-1]
        outputs.write_text(json.dumps(printed), encoding="utf-8")


def outputs_of(page: Path, pictures: Path) -> Path:
    """Return the file that holds what each block of a page prints."""
    name = "-".join(page.relative_to(pictures.parent).with_suffix(".json").parts)
    return pictures / name


def has_results(page: Path) -> bool:
    """Return whether a page shows a picture of its own, or prints."""
    text = page.read_text(encoding="utf-8")
    return bool(PICTURE.search(text)) or any("print(" in code for code in BLOCK.findall(text))


def run_pages(app: Sphinx) -> None:
    """Run every page that shows a picture of its own, or prints."""
    if not app.config.run_pages:
        return
    source = Path(app.srcdir)
    pictures = source / "pictures"
    pictures.mkdir(exist_ok=True)
    pages = sorted(page for page in source.rglob("*.md") if has_results(page))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, pages, [pictures] * len(pages)))


def show_output(app: Sphinx, page: str, source: list[str]) -> None:
    """Add what each block prints below it."""
    path = outputs_of(Path(app.env.doc2path(page)), Path(app.srcdir, "pictures"))
    if not app.config.run_pages or not path.exists():
        return
    outputs = iter(json.loads(path.read_text(encoding="utf-8")))

    def with_output(block: re.Match[str]) -> str:
        output = next(outputs).strip("\n")
        return block[0] + (OUTPUT.format(output) if output else "")

    source[0] = BLOCK.sub(with_output, source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_config_value("run_pages", True, "env", bool)
    app.connect("builder-inited", run_pages)
    app.connect("source-read", show_output)
    return {"parallel_read_safe": True}
