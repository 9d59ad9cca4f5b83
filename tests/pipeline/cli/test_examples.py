"""Every command has an example that it understands, and shells complete command lines."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pandas
import pytest

from orograph.cli.commands import SPECIAL
from orograph.cli.demo import jacksboro_fault
from orograph.cli.main import _parser, main
from orograph.cli.operations import Command
from orograph.cli.parser import EXAMPLES, SHELLS, subcommands

GUIDES = Path(__file__).resolve().parents[3] / "docs" / "guides"
NAMES = [name for name, _ in subcommands(_parser())]


def test_every_command_has_an_example() -> None:
    assert sorted(EXAMPLES) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_help_of_a_command_ends_with_an_example_that_it_understands(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*name.split(), "--help"])
    assert ended.value.code == 0
    (_, _, example) = capsys.readouterr().out.partition("example: orograph ")
    words = shlex.split(example)
    assert words[: len(name.split())] == name.split()
    assert callable(_parser().parse_args(words).command)


def test_the_help_of_a_command_begins_with_a_whole_sentence() -> None:
    for name, parser in subcommands(_parser()):
        assert re.fullmatch(r"[A-Z].*[^ .]\.", parser.description or ""), name
    flood = dict(subcommands(_parser()))["flood"].description or ""
    assert flood.endswith("reaches each cell of a raster of any size.")


@pytest.mark.parametrize("command", SPECIAL, ids=lambda command: command.name)
def test_a_command_whose_parser_is_made_alone_has_the_options_that_it_has_among_all(
    command: Command,
) -> None:
    helps = {
        parser.format_help()
        for name in (command.name, *command.aliases)
        for found in (_parser(), _parser(name))
        for known, parser in subcommands(found)
        if known == command.name
    }
    assert len(helps) == 1
    assert [known for known, _ in subcommands(_parser(command.name))] == [command.name]


def test_the_guide_of_the_shell_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the elevation model to layers, as the page has it from top to bottom."""
    geopandas = pytest.importorskip("geopandas")
    monkeypatch.chdir(tmp_path)
    jacksboro_fault().rio.to_raster("dem.tif")
    page = (GUIDES / "shell.md").read_text(encoding="utf-8")
    for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL):
        for line in block.splitlines():
            assert main(shlex.split(line)[1:]) == 0, (line, capsys.readouterr().err)
    layers = {path.stem: geopandas.read_file(path) for path in tmp_path.glob("*.gpkg")}
    assert sorted(layers) == ["basins", "depressions", "path", "peaks", "streams", "within"]
    assert all(len(layer) for layer in layers.values())
    streams, basins = layers["streams"], layers["basins"]
    assert sorted(basins["label"]) == sorted(streams["link"])
    statistics = pandas.read_csv("basins.csv")
    assert statistics["cells"].sum() <= 344 * 403
    assert len(statistics) == len(basins)
    assert layers["within"]["upper"].tolist() == [0.5, 1]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("orograph walk", {"walk", "walking_time"}),
        ("orograph index ma", {"matrix"}),
        ("orograph cost_distance --lab", {"--label"}),
        ("orograph cost_distance --dtype int", {"int64"}),
        ("orograph fill de", {"dem.tif"}),
    ],
)
def test_bash_completes_a_line(
    line: str, found: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    assert main(["completion", "bash"]) == 0
    (tmp_path / "dem.tif").touch()
    words = line.split()
    typed = " ".join(shlex.quote(word) for word in words)
    asked = (
        f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _shtab_orograph orograph; "
        "printf '%s\\n' ${COMPREPLY[@]}"
    )
    done = subprocess.run(
        [bash, "--norc", "-c", f"{capsys.readouterr().out}\n{asked}"],
        capture_output=True, text=True, check=True, cwd=tmp_path, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert set(done.stdout.split()) == found


@pytest.mark.parametrize("shell", SHELLS)
def test_there_is_a_script_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    said = capsys.readouterr().out
    assert "region_network" in said
    assert "--min-prominence" in said
