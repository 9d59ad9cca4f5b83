"""Refuse a tag that is not the version: ``python .ci/release.py v0.1.0``.

The tag, `version` in pyproject.toml and the newest section of CHANGELOG.md must agree, and that
section must have a date.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def problems(tag: str, root: Path = ROOT) -> list[str]:
    """Return what stands in the way of releasing this tag."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = re.search(r"^## (\S+) \((.*)\)$", changelog, re.MULTILINE)
    found = []
    if tag != f"v{project['version']}":
        found.append(f"tag {tag}, but pyproject.toml says {project['version']}")
    if heading is None or heading[1] != project["version"]:
        found.append(f"CHANGELOG.md does not begin with a section {project['version']} (date)")
    elif not re.fullmatch(r"\d{4}-\d\d-\d\d", heading[2]):
        found.append(f"CHANGELOG.md: {heading[1]} is ({heading[2]}), not dated (2026-01-31)")
    return found


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    if found := problems(sys.argv[1]):
        raise SystemExit("; ".join(found))
