"""What the release workflow checks before it publishes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("tag", "heading", "cited", "here", "problem"),
    [
        pytest.param("v1.2.0", "1.2.0 (2026-01-31)", "2026-01-31", "a/b", "", id="all agree"),
        pytest.param("v1.2.0", "1.2.0 (2026-01-31)", "2026-01-31", "", "", id="not on GitHub"),
        pytest.param(
            "v1.3.0", "1.2.0 (2026-01-31)", "2026-01-31", "", "tag v1.3.0", id="another version"
        ),
        pytest.param("v1.2.0", "1.2.0 (unreleased)", "2026-01-31", "", "not dated", id="no date"),
        pytest.param(
            "v1.2.0", "1.1.0 (2026-01-31)", "2026-01-31", "", "does not begin", id="no section"
        ),
        pytest.param(
            "v1.2.0", "1.2.0 (2026-01-31)", "2026-01-30", "", "date-released", id="date cited"
        ),
        pytest.param(
            "v1.2.0",
            "1.2.0 (2026-01-31)",
            "2026-01-31",
            "c/b",
            "is not c/b",
            id="repository",
        ),
    ],
)
def test_a_tag_is_released_only_if_everything_names_its_version(
    tag: str, heading: str, cited: str, here: str, problem: str, tmp_path: Path
) -> None:
    (tmp_path / ".ci").mkdir()
    script = tmp_path / ".ci/release.py"
    script.write_bytes((ROOT / ".ci/release.py").read_bytes())
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nversion = "1.2.0"\nurls = {Repository = "https://github.com/a/b"}\n'
    )
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n\n- A line.\n")
    (tmp_path / "CITATION.cff").write_text(f"version: 1.2.0\ndate-released: {cited}\n")
    done = subprocess.run(
        [sys.executable, script, tag],
        env={**os.environ, "GITHUB_REPOSITORY": here},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) == bool(problem)
    assert problem in done.stderr
