"""The documentation tells the truth: its code runs, its links lead on, no name is left out."""

from __future__ import annotations

import csv
import doctest
import inspect
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import FunctionType

import pytest
from changed_copy import copy_with_changes, run_in_copy, section_of
from cuda_on_cpu.emulator import find_compiler
from programs import run_program

import orograph
from orograph.cli.main import _parser
from orograph.operations.operation import GROUPS, public_operations

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")])
BUILT = ("docs/gallery/", "docs/pictures/")  # `make site` writes them
BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"i?py", re.IGNORECASE)
LINK = re.compile(r"\]\(([^)\s]+)\)")

# The settings are an object, which the docstring of their module describes.
NAMES = [name for name in orograph.__all__ if name != "config"]


def page_id(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def shows_python(page: Path) -> bool:
    return any(PYTHON.match(block[2]) for block in BLOCK.finditer(page.read_text(encoding="utf-8")))


def code_of(page: Path) -> str:
    """The Python blocks of a page as one program, each line where it stands in the page.

    Blocks that are files repeat ``from __future__``, which a program has once, in its beginning.
    """
    text = page.read_text(encoding="utf-8")
    future = 0
    program = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        indent, language, code = block.groups()
        if not PYTHON.match(language):
            continue
        first = text.count("\n", 0, block.start(3))
        place = f"{page_id(page)}:{first}"
        assert language == "python", f"{place}: write ```python, not ```{language}"
        prompts = re.search(rf"^{indent}>>>", code, re.MULTILINE)
        assert not prompts, f"{place}: write the code alone, without prompts"
        for number, line in enumerate(code.splitlines(), first):
            future += line.startswith("from __future__")
            if future < 2 or not line.startswith("from __future__"):
                program[number] = line.removeprefix(indent)
    return "\n".join(program).rstrip() + "\n"


# xarray titles a picture by the scalar coordinates of what it draws.
CHECK_TITLES = """
import matplotlib.pyplot

for number in matplotlib.pyplot.get_fignums():
    for place in matplotlib.pyplot.figure(number).axes:
        assert " = " not in place.get_title(), f"set a title in place of {place.get_title()!r}"
"""


@pytest.mark.parametrize("page", [p for p in PAGES if shows_python(p)], ids=page_id)
def test_code_blocks_run(page: Path, tmp_path: Path) -> None:
    if "cuda_on_cpu" in code_of(page) and find_compiler() is None:
        pytest.skip("no C++ compiler to run CUDA kernels on the CPU; install g++ or set CXX")
    # As in a session: clusters start without a guard for `__main__`, later blocks see the
    # names of earlier ones, and whatever is left running ends with the process.
    run_program(code_of(page) + CHECK_TITLES, page, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_lead_somewhere(page: Path) -> None:
    prose = BLOCK.sub("", page.read_text(encoding="utf-8"))
    for link in LINK.findall(prose):
        target = link.split("#")[0]
        if target and "://" not in target and not target.startswith("mailto:"):
            path = Path(os.path.normpath(page.parent / target))
            if path.relative_to(ROOT).as_posix().startswith(BUILT):
                continue  # of pictures the next test knows, of the gallery the build of the site
            assert path.exists(), f"{page_id(page)}: no {link}"


@pytest.mark.parametrize("name", ["README.md", "docs/index.md"])
def test_what_a_reader_sees_first_is_plain_markdown(name: str) -> None:
    """On a code host: its pictures are in the tree, and no directive of Sphinx is shown."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not re.search(r"^(:{3,}|`{3}\{|:[\w-]+:)|\{\w+\}`", text, re.MULTILINE)
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert shown
    tracked = subprocess.run(
        ["git", "ls-files", "docs"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    for picture in shown:
        path = (ROOT / name).parent / picture
        assert os.path.relpath(path, ROOT) in tracked, f"{name}: {picture} is not in the tree"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_a_page_draws_the_pictures_that_it_shows(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    shown = re.findall(r"!\[[^\]]+\]\((?:\.\./)*pictures/([\w.-]+)\)", text)
    drawn = re.findall(r"\"([\w-]+\.png)\"", code_of(page))
    assert set(shown) <= set(drawn)


def test_every_guide_has_code_and_a_place_in_the_list() -> None:
    listed = (ROOT / "docs/guides/index.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs/guides").glob("*.md"):
        if page.name != "index.md":
            assert f"({page.name})" in listed, f"{page.name} is not in the table of guides"
            assert f"\n{page.stem}\n" in listed, f"{page.name} is not in the table of contents"
            assert shows_python(page), f"{page.name} shows no code"


CALLABLE = (FunctionType, orograph.Operation)
FUNCTIONS = [name for name in NAMES if isinstance(getattr(orograph, name), CALLABLE)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_used_in_a_guide_with_a_picture(name: str) -> None:
    guides = (ROOT / "docs/guides").glob("*.md")
    drawn = [page for page in guides if "](../pictures/" in page.read_text(encoding="utf-8")]
    assert any(re.search(rf"\bog\.{name}\b", code_of(page)) for page in drawn), name


def test_the_glossary_says_what_each_public_thing_stands_for() -> None:
    text = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    for name in orograph.__all__:
        thing = getattr(orograph, name)
        if not (inspect.isclass(thing) and issubclass(thing, Exception)):
            assert f"`og.{name}`" in text, f"og.{name} has no place in the glossary"


def test_the_guide_to_gpus_says_of_each_operation_where_it_runs() -> None:
    text = (ROOT / "docs/guides/gpus.md").read_text(encoding="utf-8")
    for name, operation in public_operations().items():
        if operation.takes_raster:
            assert re.search(rf"^\|.*`{name}`.*\|$", text, re.MULTILINE), name


def test_the_counterparts_of_other_programs_are_listed_once() -> None:
    text = (ROOT / "docs/guides/coming_from.md").read_text(encoding="utf-8")
    named = [cell.strip() for cell in re.findall(r"^\|([^|]*)\|", text, re.MULTILINE)]
    entries = [name for name in named if not set(name) <= set("-") and name != "function"]
    assert len(entries) > 50
    assert sorted(set(entries)) == sorted(entries)


def test_the_guide_to_operating_names_each_error() -> None:
    text = (ROOT / "docs/guides/operating.md").read_text(encoding="utf-8")
    for name in orograph.__all__:
        thing = getattr(orograph, name)
        if inspect.isclass(thing) and issubclass(thing, Exception):
            assert f"`{name}`" in text, name


def test_every_public_name_is_in_one_list_of_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs/extensions")
    names = import_module("names")
    lists = names.LIST.findall((ROOT / "docs/api.md").read_text(encoding="utf-8"))
    listed = [name for folders in lists for name in names.names_in(folders)]
    assert sorted(listed) == sorted(orograph.__all__)


def test_the_start_of_the_site_is_that_of_the_readme() -> None:
    first = [BLOCK.search(code.read_text(encoding="utf-8")) for code in (
        ROOT / "README.md", ROOT / "docs/index.md"
    )]  # fmt: skip
    readme, index = (block and block[3] for block in first)
    assert readme
    assert readme == index


COMMAND = re.compile(r"^    orograph (.*)$|`orograph ([^`|]*?)`", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_commands_are_those_of_the_command_line(page: Path) -> None:
    for groups in COMMAND.findall(page.read_text(encoding="utf-8")):
        words = shlex.split("".join(groups), comments=True)
        if len(words) > 1 and "..." not in words:  # else only named
            _parser().parse_args(words)  # exits with what is wrong


def test_the_readme_shows_a_run() -> None:
    assert "orograph" in code_of(ROOT / "README.md")


USE_PROBLEM = """
import doctest
import numpy as np
import xarray as xr
import orograph as og
from orograph.cli.main import _parser as main_parser

if __name__ == "__main__":
    heights = np.random.default_rng(1).random((40, 30))
    shares = og.relative_height(heights, tile=8)["share"]
    assert np.array_equal(shares, heights / heights.max())
    assert "relative_height" in og.__all__
    # nothing else names it: a method of rasters, a command
    raster = xr.DataArray(heights, dims=("y", "x"))
    assert np.array_equal(raster.orograph.relative_height(tile=8)["share"], shares)
    command = ["relative_height", "dem.tif", "shares.zarr", "--tile", "8"]
    assert main_parser().parse_args(command).elevation == "dem.tif"
    doctest.run_docstring_examples(og.relative_height, {}, name="relative_height")
    with og.cluster(2):
        stored = og.relative_height(heights, tile=8, out="shares.zarr")
    assert np.array_equal(stored["share"], shares)
"""


def test_the_page_adds_a_problem_in_three_files(tmp_path: Path) -> None:
    section = section_of(ROOT / "docs/extending.md", "Add a problem")
    assert len(copy_with_changes(section, tmp_path)) <= 3
    said = run_in_copy(tmp_path, USE_PROBLEM)
    assert "Failed example" not in said, said


USE_SPREADING = """
import numpy as np
from skimage.morphology import reconstruction
import orograph as og
from orograph.lowest_on_the_way import lowest_on_the_way

if __name__ == "__main__":
    heights = np.random.default_rng(2).random((40, 30))
    marker = np.where(np.arange(1200).reshape(40, 30) == 0, heights, 0)
    expected = reconstruction(marker, heights, footprint=np.ones((3, 3)))
    with og.cluster(2):
        stored = lowest_on_the_way(heights, (0, 0), tile=8, out="levels.zarr")
    assert np.array_equal(stored["level"], expected)
"""


def test_the_page_adds_a_problem_that_spreads(tmp_path: Path) -> None:
    section = section_of(ROOT / "docs/extending.md", "Add a problem that spreads")
    assert len(copy_with_changes(section, tmp_path)) == 1
    run_in_copy(tmp_path, USE_SPREADING)


def test_every_operation_is_in_the_places_that_the_page_lists() -> None:
    text = section_of(ROOT / "docs/extending.md", "Add a problem")
    places = re.findall(r"^\| `([\w/.]+)` \| (.*) \|$", text, re.MULTILINE)
    assert len(places) == 8
    operations = [name for name in NAMES if isinstance(getattr(orograph, name), orograph.Operation)]
    for place, what in places:
        known = set(re.findall(r"\w+", (ROOT / place).read_text(encoding="utf-8")))
        for name in operations:
            assert name in known, f"{name} is not in {place}; add {what}"


def section(docstring: str, title: str) -> str | None:
    """The text of a numpydoc section, None if there is no such section."""
    found = re.search(
        rf"^{title}\n-{{{len(title)}}}\n(.*?)(?=^\w[^\n]*\n--+\n|\Z)",
        inspect.cleandoc(docstring),
        re.MULTILINE | re.DOTALL,
    )
    return found and found.group(1)


@pytest.mark.parametrize("name", NAMES)
def test_docstring_is_complete(name: str) -> None:
    thing = getattr(orograph, name)
    docstring = thing.__doc__ or ""
    assert section(docstring, "Examples"), f"{name}: no Examples section"
    if inspect.isclass(thing):
        members = {key: getattr(thing, key) for key in vars(thing) if not key.startswith("_")}
        bare = [key for key, member in members.items() if not inspect.getdoc(member)]
        assert not bare, f"{name}: without a docstring: {', '.join(bare)}"
        return

    sections = {"Parameters", *(group.heading for group in GROUPS if group.heading)}
    listed = "".join(section(docstring, title) or "" for title in sections)
    titles = re.findall(r"^(\S[^:\n]*?)(?: *:.*)?$", listed, re.MULTILINE)
    documented = {part.strip().lstrip("*") for title in titles for part in title.split(",")}
    signature = inspect.signature(thing)
    assert documented == set(signature.parameters), f"{name}: other parameters than its own"
    for title in (*sections, "Raises"):
        undescribed = re.findall(
            r"^(\S.*)\n(?!    \S)", section(docstring, title) or "", re.MULTILINE
        )
        assert not undescribed, f"{name}: {title} without a description"
    if signature.return_annotation not in (None, "None"):
        assert section(docstring, "Returns"), f"{name}: no Returns section"


@pytest.mark.parametrize("name", NAMES)
def test_docstring_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = doctest.DocTestFinder().find(getattr(orograph, name), name, globs={})
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False, optionflags=flags)
    for example in examples:
        runner.run(example, out=report.append)
    results = runner.summarize(verbose=False)
    assert results.attempted > 0, f"{name}: its Examples section has no example"
    assert results.failed == 0, "".join(report)


def test_the_readme_has_the_figures_of_the_records() -> None:
    """`make bench-docs` writes both."""
    code = "import sys, readme_table as t; sys.stdout.write(t.written(sys.stdin.read()))"
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "docs"), "PYTHONIOENCODING": "utf-8"},
        input=text,
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.stdout == text


def test_every_record_is_shown_and_measured_by_a_script() -> None:
    pages = [ROOT / f"docs/{name}.md" for name in ("performance", "reproduction", "scaling")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    shown = set(re.findall(r"^```\{records\} (\w+)$", text, re.MULTILINE))
    shown |= {f"papers_{name}" for name in re.findall(r"^```\{printed\} (\w+)$", text, re.M)}
    shown |= set(re.findall(r"performance/(\w+)\.csv", text))
    records = {path.stem: path for path in (ROOT / "docs/performance").glob("*.csv")}
    assert sorted(shown) == sorted(records)
    for path in records.values():
        for script in re.findall(r"python (\S+)", path.read_text(encoding="utf-8")):
            main = ROOT / script / "__main__.py"
            assert (ROOT / script).is_file() or main.is_file(), f"{path.name}: no {script}"


@pytest.mark.parametrize("name", ["gerritsen", "malison", "cuda_chapter", "tricella", "hellas"])
def test_every_table_of_a_paper_is_on_the_page(name: str) -> None:
    page = (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")
    blocks = re.findall(rf"^```\{{printed\}} {name}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    shown = [line for block in blocks for line in block.splitlines()]
    with open(ROOT / f"docs/performance/papers_{name}.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted(shown) == sorted({row["table"] for row in rows})
    for row in rows:
        assert row["median"] or row["note"], f"{row['what']}: neither a figure nor a reason"


def test_figures_are_those_of_their_script(tmp_path: Path) -> None:
    script = ROOT / "docs/figures.py"
    subprocess.run([sys.executable, script, tmp_path], check=True)
    drawn = {path.name: path.read_text() for path in tmp_path.glob("*.svg")}
    assert drawn.keys() == {path.name for path in (ROOT / "docs").glob("*.svg")}
    # versions of matplotlib draw other glyph tables and numbers: the words must be the same
    for name, text in drawn.items():
        words = re.findall(r"<text[^>]*>([^<]*)</text>", text)
        committed = (ROOT / "docs" / name).read_text()
        assert words
        assert re.findall(r"<text[^>]*>([^<]*)</text>", committed) == words
