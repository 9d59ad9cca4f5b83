"""What the shell prints when a run cannot go on: one sentence, and nothing of Dask's.

Commands run in processes of their own here: the workers of a cluster write to their stderr too.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import xarray as xr

import orograph as og
from orograph.cli import main as command_line
from orograph.cli.main import main

BOTH = ("cost", "back_direction")


def start(*arguments: object) -> subprocess.Popen[str]:
    """Start a command in a group of its own, as a terminal does."""
    return subprocess.Popen(
        [sys.executable, "-m", "orograph", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=heed_ctrl_c,
    )


def heed_ctrl_c() -> None:
    """Undo what a shell does to commands in the background: to ignore Ctrl-C is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def said(process: subprocess.Popen[str]) -> list[str]:
    """Wait for the end of a command; return the lines it printed, but those of its progress.

    One of these says that kernels are compiled, where the cache has none yet.
    """
    lines = process.communicate(timeout=120)[0].replace("\r", "\n").splitlines()
    progress = "dashboard: ", "cost_distance: ", "orograph: compiling kernels, "
    return [line for line in lines if line.strip() and not line.startswith(progress)]


def test_friction_that_only_a_task_sees_is_refused_in_one_sentence(tmp_path: Path) -> None:
    friction = np.ones((300, 300), np.float32)
    friction[299, 290] = -2
    store, out = tmp_path / "f.zarr", tmp_path / "c.zarr"
    og.ingest(friction, store, tile=64, shard=64)
    process = start("cost", store, out, "--point", 0, 0, "--workers", 1)
    (sentence,) = said(process)
    assert sentence.startswith("orograph: friction: -2.0 at row 299, column 290; it must be 0 or")
    assert process.returncode == 2
    assert [path.name for path in tmp_path.iterdir()] == ["f.zarr"]


@pytest.mark.parametrize(
    ("sent", "workers", "what", "status"),
    [
        (signal.SIGINT, 1, "interrupted", 130),
        (signal.SIGTERM, 1, "terminated", 143),
        pytest.param(signal.SIGINT, 2, "interrupted", 130, marks=pytest.mark.long),
    ],
)
def test_a_signal_prints_one_line_and_leaves_what_resume_goes_on_with(
    tmp_path: Path, sent: signal.Signals, workers: int, what: str, status: int
) -> None:
    friction = np.random.default_rng(0).uniform(1, 2, (2048, 2048)).astype(np.float32)
    store, out = tmp_path / "f.zarr", tmp_path / "c.zarr"
    og.ingest(friction, store, tile=256, shard=256)
    process = start("cost", store, out, "--point", 0, 0, "--workers", workers)
    while not (tmp_path / "c.zarr.partial" / "run.json").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    # Ctrl-C goes to all processes of a terminal; a scheduler of jobs ends the one that it started
    (os.killpg if sent == signal.SIGINT else os.kill)(process.pid, sent)
    (line,) = said(process)
    before, _, command = line.partition(": orograph ")
    assert before == f"orograph: {what}; to go on from here"
    assert process.returncode == status
    assert main(shlex.split(command)) == 0
    resumed = og.cost_distance(store, [(0, 0)], outputs=BOTH)
    xr.testing.assert_equal(og.open(out).load(), resumed)


@pytest.mark.parametrize("address", ["junk", "127.0.0.1:9", "no-such-host.invalid:8786"])
def test_a_scheduler_that_is_not_there_is_said_within_two_seconds(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    og.ingest(np.ones((4, 4)), tmp_path / "f.zarr")
    files = str(tmp_path / "f.zarr"), str(tmp_path / "c.zarr")
    begin = time.monotonic()
    assert main(["cost", *files, "--point", "0", "0", "--scheduler", address]) == 2
    assert time.monotonic() - begin < 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"orograph: --scheduler: '{address}' cannot be reached (")


def reply(server: socket.socket, answer: bytes) -> None:
    """Answer whoever connects, until the server is shut down."""
    kept = []
    with suppress(OSError):
        while True:
            kept.append(server.accept()[0])
            kept[-1].sendall(answer)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9])
def test_a_server_that_is_no_scheduler_is_refused(
    answer: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command_line, "SECONDS_TO_ANSWER", 1)
    og.ingest(np.ones((4, 4)), tmp_path / "f.zarr")
    files = str(tmp_path / "f.zarr"), str(tmp_path / "c.zarr")
    with socket.create_server(("127.0.0.1", 0)) as server:
        Thread(target=reply, args=(server, answer), daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert main(["cost", *files, "--point", "0", "0", "--scheduler", address]) == 2
        server.shutdown(socket.SHUT_RDWR)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"orograph: --scheduler: '{address}' cannot be reached (")


def test_only_what_can_be_resumed_is_said_to_be(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(og, "verify", interrupted)
    assert main(["verify", "x.zarr"]) == 130
    assert capsys.readouterr().err == "orograph: interrupted\n"
