"""Find the packages, and make the README that the package shows.

Links and pictures of the README lead to the files of its version: in the tree they are relative, so
that a clone is whole by itself, but a page on a package index has no tree beside it. All else about
the package stands in pyproject.toml.
"""

import re
import tomllib
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = SETTINGS["project"]
FOLDERS = SETTINGS["tool"]["setuptools"]["package-dir"]


def packages() -> list[str]:
    """Return the names of all packages."""
    found = []
    for name, folder in FOLDERS.items():
        # pipeline has links to the others
        inside = find_packages(str(ROOT / folder), exclude=("tiles*", "kernels*"))
        found += [name, *(f"{name}.{package}" for package in inside)]
    return found


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
    packages=packages(),
    long_description=absolute_links((ROOT / "README.md").read_text(encoding="utf-8")),
    long_description_content_type="text/markdown",
)
