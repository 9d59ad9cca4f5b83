"""What describes the package for others says what pyproject.toml says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import orograph

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAMES = {"dask-core": "dask", "matplotlib-base": "matplotlib"}  # as conda-forge has them


def requirements(lines: list[str]) -> dict[str, SpecifierSet]:
    parsed = [Requirement(line) for line in lines]
    return {NAMES.get(one.name, one.name): one.specifier for one in parsed}


def recipe() -> dict[str, dict[str, list[str]]]:
    text = (ROOT / "conda/meta.yaml").read_text(encoding="utf-8")
    version = re.search(r'set version = "(.*?)"', text)
    assert version is not None
    assert version[1] == PROJECT["version"]
    plain = re.sub(r"{%.*?%}", "", text).replace("{{ version }}", version[1])
    found: dict[str, dict[str, list[str]]] = yaml.safe_load(re.sub(r"{{.*?}}", "x", plain))
    return found


def test_the_conda_recipe_needs_what_the_wheel_needs() -> None:
    needs = recipe()["requirements"]
    own = ("__linux", "python")
    run = requirements([line for line in needs["run"] if line.split()[0] not in own])
    assert run == requirements(PROJECT["dependencies"])
    assert f"python {PROJECT['requires-python']}" in needs["run"]
    extras = PROJECT["optional-dependencies"]
    optional = requirements([*extras["vector"], *extras["plot"]])
    assert requirements(needs["run_constrained"]) == optional


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == PROJECT["version"] == orograph.__version__
    assert citation["license"] == PROJECT["license"]


def test_no_module_takes_the_place_of_a_public_name() -> None:
    """What is imported as a module of the package becomes its attribute of that name."""
    modules = {path.stem for path in (ROOT / "pipeline").iterdir()}
    assert not modules & set(orograph.__all__)
