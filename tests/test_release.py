"""What the release workflow checks before it publishes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("tag", "heading", "problem"),
    [
        pytest.param("v1.2.0", "1.2.0 (2026-01-31)", "", id="all agree"),
        pytest.param("v1.3.0", "1.2.0 (2026-01-31)", "tag v1.3.0", id="tag of another version"),
        pytest.param("v1.2.0", "1.2.0 (unreleased)", "not dated", id="no date"),
        pytest.param("v1.2.0", "1.1.0 (2026-01-31)", "does not begin", id="no section"),
    ],
)
def test_a_tag_is_released_only_if_everything_names_its_version(
    tag: str, heading: str, problem: str, tmp_path: Path
) -> None:
    (tmp_path / ".ci").mkdir()
    script = tmp_path / ".ci/release.py"
    script.write_bytes((ROOT / ".ci/release.py").read_bytes())
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n\n- A line.\n")
    done = subprocess.run(
        [sys.executable, script, tag], capture_output=True, text=True, check=False
    )
    assert (done.returncode != 0) == bool(problem)
    assert problem in done.stderr
