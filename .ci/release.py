"""Refuse a tag that is not the version: ``python .ci/release.py v0.1.0``.

The tag, `version` in pyproject.toml, the newest section of CHANGELOG.md and CITATION.cff must
agree, and that section must have the date that CITATION.cff has. On GitHub the repository must be
the one to which the package's page leads.
"""

from __future__ import annotations

import os
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
    citation = dict(
        re.findall(
            r"^(version|date-released): (\S+)$",
            (root / "CITATION.cff").read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    )
    found = []
    if tag != f"v{project['version']}":
        found.append(f"tag {tag}, but pyproject.toml says {project['version']}")
    if heading is None or heading[1] != project["version"]:
        found.append(f"CHANGELOG.md does not begin with a section {project['version']} (date)")
    elif not re.fullmatch(r"\d{4}-\d\d-\d\d", heading[2]):
        found.append(f"CHANGELOG.md: {heading[1]} is ({heading[2]}), not dated (2026-01-31)")
    elif heading[2] != citation.get("date-released"):
        found.append(f"CITATION.cff: date-released is not {heading[2]}, as in CHANGELOG.md")
    if citation.get("version") != project["version"]:
        found.append(f"CITATION.cff: version is not {project['version']}")
    here = os.environ.get("GITHUB_REPOSITORY")
    if here and project["urls"]["Repository"] != f"https://github.com/{here}":
        found.append(
            f"pyproject.toml: Repository under [project.urls] is not {here}, which this is"
        )
    return found


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    if found := problems(sys.argv[1]):
        raise SystemExit("; ".join(found))
