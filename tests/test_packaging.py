"""What describes the package for others says what pyproject.toml says."""

from __future__ import annotations

import re
import tomllib
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import orograph

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, SYSTEM = PYPROJECT["project"], PYPROJECT["build-system"]
NAMES = {"dask-core": "dask", "matplotlib-base": "matplotlib"}  # as conda-forge has them


def requirements(lines: list[str]) -> dict[str, SpecifierSet]:
    parsed = [Requirement(line) for line in lines]
    return {NAMES.get(one.name, one.name): one.specifier for one in parsed}


def recipe() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "conda/recipe.yaml").read_text(encoding="utf-8"))
    return found


def test_the_conda_recipe_needs_what_the_wheel_needs() -> None:
    found = recipe()
    assert found["context"]["version"] == PROJECT["version"]
    needs = found["requirements"]
    own = ("__linux", "python")
    run = requirements([line for line in needs["run"] if line.split()[0] not in own])
    assert run == requirements(PROJECT["dependencies"])
    assert f">={found['context']['python_min']}" == PROJECT["requires-python"]
    extras = PROJECT["optional-dependencies"]
    optional = requirements(
        [*extras["dashboard"], *extras["vector"], *extras["plot"], *extras["explore"][1:]]
    )
    assert requirements(needs["run_constraints"]) == optional
    (setuptools,) = (line for line in needs["host"] if line.startswith("setuptools"))
    assert requirements([setuptools]) == requirements(SYSTEM["requires"])
    (entry,) = found["build"]["python"]["entry_points"]
    assert dict([entry.split(" = ")]) == PROJECT["scripts"]
    about = found["about"]
    assert about["homepage"] == PROJECT["urls"]["Homepage"]
    assert about["repository"] == PROJECT["urls"]["Repository"]
    assert about["documentation"] == PROJECT["urls"]["Documentation"]
    assert about["summary"] == PROJECT["description"]
    assert about["license"] == PROJECT["license"]


def test_the_conda_recipe_is_one_to_the_program_that_builds_it() -> None:
    rattler_build = pytest.importorskip("rattler_build", reason="py-rattler-build is not installed")
    recipe = rattler_build.Stage0Recipe.from_file(str(ROOT / "conda/recipe.yaml"))
    (rendered,) = recipe.render(rattler_build.VariantConfig(), rattler_build.RenderConfig())
    package = rendered.recipe.package
    assert (package.name, package.version) == ("orograph", PROJECT["version"])


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert str(citation["version"]) == PROJECT["version"] == orograph.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Repository"]
    date.fromisoformat(str(citation["date-released"]))


def test_classifiers_are_known_and_name_the_versions_that_are_tested() -> None:
    classifiers = PROJECT["classifiers"]
    assert classifiers == sorted(classifiers)
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    tested = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    named = [one.split(" :: ")[-1] for one in classifiers if re.search(r":: 3\.\d+$", one)]
    assert named == tested
    assert f">={named[0]}" == PROJECT["requires-python"]


def test_no_module_takes_the_place_of_a_public_name() -> None:
    """What is imported as a module of the package becomes its attribute of that name."""
    modules = {path.stem for path in (ROOT / "pipeline").iterdir()}
    assert not modules & set(orograph.__all__)
