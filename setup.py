"""Make the README that the package shows: links and pictures lead to the files of its version.

In the tree they are relative, so that a clone is whole by itself. On a package index there is no
tree beside the page. Everything else about the package stands in pyproject.toml.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def absolute_links(text: str) -> str:
    """Return Markdown whose relative links lead to the repository, at the tag of this version."""
    repository = PROJECT["urls"]["Repository"]
    tag = f"v{PROJECT['version']}"
    raw = repository.replace("https://github.com/", "https://raw.githubusercontent.com/")

    def absolute(match: re.Match[str]) -> str:
        start, target = match.groups()
        place = f"{raw}/{tag}" if start.startswith("!") else f"{repository}/blob/{tag}"
        return f"{start}({place}/{target})"

    return re.sub(r"(!?\[[^\]]*\])\((?!\w+:|#)([^)\s]+)\)", absolute, text)


setup(
    long_description=absolute_links((ROOT / "README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
