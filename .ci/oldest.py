"""Print the oldest versions of what orograph needs, as constraints for pip."""

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"

for line in tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]:
    if found := re.match(r"([\w-]+)(?:\[.*\])?>=([\d.]+)", line):
        print("==".join(found.groups()))
