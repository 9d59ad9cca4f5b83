"""Operations: what can be asked of each of them, and what they say of themselves."""

from __future__ import annotations

import inspect
import pickle
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import xarray as xr

import orograph as og
from orograph import typing
from orograph.arguments.keywords import Choice, entries_in
from orograph.operations.docstrings import SHARED, whole_docstring
from orograph.operations.operation import GROUPS
from orograph.run.options import RunOptions, RunSpec

ROOT = Path(__file__).resolve().parents[3]
GRID = np.arange(1.0, 13).reshape(3, 4)
NAMED = {name: getattr(og, name) for name in og.__all__}
OPERATIONS: dict[str, og.Operation[..., Any]] = {
    **{name: thing for name, thing in NAMED.items() if isinstance(thing, og.Operation)},
    "DistanceIndex.build": og.DistanceIndex.build,
}
every = pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)


@every
def test_signatures_show_the_options_and_what_each_verb_returns(operation: Any) -> None:
    called = inspect.signature(operation)
    assert not any(p.kind is p.VAR_KEYWORD for p in called.parameters.values())
    assert {"backend", "client"} <= set(called.parameters)
    submitted = inspect.signature(operation.submit)
    assert submitted.parameters == called.parameters
    assert submitted.return_annotation == f"Run[{called.return_annotation}]"
    lazy = inspect.signature(operation.lazy).parameters
    assert set(called.parameters) - set(lazy) == {"client"}
    planned = inspect.signature(operation.plan)
    assert planned.return_annotation == "Plan"
    needed = [p.name for p in planned.parameters.values() if p.default is p.empty]
    assert needed == [next(iter(called.parameters))]
    assert not {"out", "overwrite", "resume", "takeover", "backend", "client"} & {
        *planned.parameters
    }


@every
def test_an_editor_is_told_what_each_parameter_takes(operation: Any) -> None:
    for name, parameter in inspect.signature(operation).parameters.items():
        assert parameter.annotation not in ("Any", parameter.empty), name
        for kind in re.findall(r"(?<!\.)\b\w+Like\b", str(parameter.annotation)):
            assert get_args(getattr(typing, kind) | None), f"{name}: {kind}"


@every
def test_help_explains_each_parameter(operation: Any) -> None:
    text = pydoc.plain(pydoc.render_doc(operation))
    assert f"{operation.__name__}(" in text
    assert "**options" not in text
    for name in inspect.signature(operation).parameters:
        assert f"    {name}" in text or f", {name}" in text, name
    for verb in ("submit", "lazy", "plan"):
        text = pydoc.plain(pydoc.render_doc(getattr(operation, verb)))
        assert f"{verb}(" in text
        assert "Return " in text or "Start " in text


def test_shared_entries_stand_for_names_alone() -> None:
    doc = """Return it.

    Parameters
    ----------
    connectivity, snap
    codes, other
        As for `peaks`.
    codes
    unknown, direction
    **options
    """
    assert whole_docstring(doc, {"": {"band": "band : int\n    Which.\n"}}) == (
        "Return it.\n\nParameters\n----------\n"
        f"{SHARED['connectivity']}{SHARED['snap']}"
        "codes, other\n    As for `peaks`.\n"
        f"{SHARED['codes']}"
        "unknown, direction\n"
        "band : int\n    Which.\n"
    )


def test_keywords_of_groups_stand_in_their_sections() -> None:
    doc = """Return it.

    Parameters
    ----------
    outputs : str
        What.
    snap : bool
        Of its own.
    **options

    Returns
    -------
    """
    sections = {
        "": {"band": "band : int\n    Which.\n"},
        "Sources": {"snap": "snap : int\n    Shared.\n", "label": "label : str\n    Name.\n"},
        "Steps": {"outputs": "outputs : str\n    Shared.\n"},
    }
    assert whole_docstring(doc, sections) == (
        "Return it.\n\nParameters\n----------\n"
        "outputs : str\n    What.\nsnap : bool\n    Of its own.\nband : int\n    Which.\n"
        "\nSources\n-------\nlabel : str\n    Name.\n"
        "\nReturns\n-------"
    )


@every
def test_each_keyword_is_described_once(operation: Any) -> None:
    for name in inspect.signature(operation).parameters:
        entries = re.findall(rf"^(?:\w+, )*{name}(?:, \w+)*(?: : .*)?$", operation.__doc__, re.M)
        assert len(entries) == 1, name


def test_the_keywords_of_a_group_are_the_fields_of_its_class() -> None:
    for group in GROUPS:
        described = entries_in(group.documented.__doc__)
        inherited = set() if group is not RunSpec else set(Choice.defaults())
        beyond = {"crs"} if group is RunSpec else set()  # of layers and tables
        assert described.keys() == group.defaults().keys() - inherited - beyond
        assert group.of({"tile": 64, "label": "name", "other": 1}).changed() == {
            name: name in ("tile", "label") for name in group.defaults()
        }


def test_all_options_of_rasters_are_options_of_a_forest() -> None:
    known = inspect.signature(og.minimum_spanning_forest).parameters
    assert set(RunOptions.__annotations__) < set(known)


@every
def test_an_operation_is_pickled_by_its_name(operation: Any) -> None:
    assert pickle.loads(pickle.dumps(operation)) is operation
    bound = operation.bind(GRID)
    back = pickle.loads(pickle.dumps(bound))
    assert repr(back) == repr(bound) == repr(operation)
    assert inspect.signature(back) == inspect.signature(bound)
    assert np.array_equal(back.given[0], GRID)


def test_methods_of_a_raster_have_the_verbs_too() -> None:
    raster = xr.DataArray(GRID, dims=("y", "x"))
    expected = og.cost_distance(GRID, [(0, 0)])
    method = raster.orograph.cost_distance
    assert next(iter(inspect.signature(method).parameters)) == "sources"
    assert method([(0, 0)]).equals(expected)
    assert method.submit([(0, 0)]).result().equals(expected)
    assert method.lazy([(0, 0)]).compute().equals(expected)
    assert method.plan() == og.cost_distance.plan(raster)
    with pytest.raises(TypeError, match="did you mean 'max_cost'"):
        method([(0, 0)], max_costs=3)


def test_an_operation_of_a_class_is_a_method_of_its_instances() -> None:
    class Terrain(np.ndarray):
        fill = og.fill_depressions

    assert Terrain.fill is og.fill_depressions
    assert GRID.view(Terrain).fill().equals(og.fill_depressions(GRID))


@pytest.mark.parametrize("name", ["out", "overwrite", "resume", "takeover", "backend", "client"])
def test_a_plan_refuses_what_only_a_run_has(name: str) -> None:
    with pytest.raises(og.InputError, match=rf"{name}: not for \.plan, .*use \.submit"):
        og.cost_distance.plan(GRID, **{name: None})


PAGE = """
extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "operations"]
autosummary_generate = True
"""


def test_an_operation_has_a_page_with_its_signature(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'docs/extensions')!r})\n{PAGE}"
    )
    (tmp_path / "index.rst").write_text(
        ".. currentmodule:: orograph\n.. autosummary::\n   :toctree: generated\n\n   peaks\n"
    )
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "text", str(tmp_path), "out"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=300)
    text = (tmp_path / "out/generated/orograph.peaks.txt").read_text(encoding="utf-8")
    assert "min_prominence" in text.split("Return the peaks")[0], "no signature"
    assert "takeover" in text, "options are not explained"
