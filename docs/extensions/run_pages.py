"""Run the Python of the pages while the site is built: the pictures shown are what it draws.

Each page with ``![...](pictures/name.png)`` is one program, its blocks of ``python`` in order, run
in a folder of its own. The pictures that it saves there are put into ``docs/pictures``. A page is
run again when it is newer than its pictures.
"""

from __future__ import annotations

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
BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
log = logging.getLogger(__name__)


def run(page: Path, pictures: Path) -> None:
    """Run the blocks of a page as one program, and keep the pictures that it saves."""
    text = page.read_text(encoding="utf-8")
    wanted = [pictures / name for name in PICTURE.findall(text)]
    written = page.stat().st_mtime
    if all(path.exists() and path.stat().st_mtime >= written for path in wanted):
        return
    log.info("running %s", page.name)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", "\n".join(BLOCK.findall(text))],
            cwd=folder,
            env={**os.environ, "MPLBACKEND": "agg"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ExtensionError(f"{page}: its code fails\n{done.stdout}")
        for path in wanted:
            drawn = Path(folder, path.name)
            if not drawn.exists():
                raise ExtensionError(f"{page}: its code does not save {path.name}")
            shutil.copyfile(drawn, path)


def run_pages(app: Sphinx) -> None:
    """Run every page that shows a picture of its own."""
    if not app.config.run_pages:
        return
    source = Path(app.srcdir)
    pictures = source / "pictures"
    pictures.mkdir(exist_ok=True)
    pages = [p for p in source.rglob("*.md") if PICTURE.search(p.read_text(encoding="utf-8"))]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, sorted(pages), [pictures] * len(pages)))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_config_value("run_pages", True, "env", bool)
    app.connect("builder-inited", run_pages)
    return {"parallel_read_safe": True}
