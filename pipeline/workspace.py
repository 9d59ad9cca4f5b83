"""The folder of a run on disk: its checkpoints, and its result until that is whole.

A run that writes to ``out`` works in ``out.partial``; only when everything is written does the
result take its name. So a store that exists under its name is complete, and a folder that ends in
``.partial`` holds all that is needed to go on.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from orograph.tiles.errors import InputError, StoreExistsError, full_storage_reported
from orograph.tiles.publish import check_target, partial_path, publish, replace_file
from orograph.vault import DiskVault


class Workspace:
    """The folder in which a run that writes ``out`` works.

    Parameters
    ----------
    out
        Where the result will stand.
    identity
        What the run computes, in JSON types: two runs of the same identity have the same result.
    overwrite
        May a store at ``out``, or an unfinished run that would make one, be replaced?
    resume
        Go on with an unfinished run, if there is one of this identity.

    Raises
    ------
    StoreExistsError
        If ``out`` exists, or an unfinished run of it, and neither argument says what to do.
    InputError
        If the unfinished run computes something else.
    """

    def __init__(
        self, out: str | Path, identity: Mapping[str, Any], *, overwrite: bool, resume: bool
    ) -> None:
        self.out = Path(out)
        self.folder = partial_path(self.out)
        self.result = self.folder / "result.zarr"
        self._identity_file = self.folder / "run.json"
        self._identity = json.loads(json.dumps(identity))
        check_target(self.out, overwrite)
        self.resumed = self.folder.exists() and resume
        if self.folder.exists() and not self._is_ours():
            raise StoreExistsError(
                f"out: {self.folder} is in the way and holds no unfinished run; move it away"
            )
        if self.resumed:
            self._check_identity()
        elif self.folder.exists() and not overwrite:
            raise StoreExistsError(
                f"out: an unfinished run is in {self.folder}; pass resume=True to go on with it, "
                "or overwrite=True to start anew"
            )

    def open(self, create_result: Callable[[Path], None]) -> DiskVault:
        """Make the folder ready, with an empty result unless the run is resumed."""
        if not self.resumed:
            if self.folder.exists():
                shutil.rmtree(self.folder)
            with full_storage_reported(self.folder):
                self.folder.mkdir(parents=True)
                create_result(self.result)
                # last: a folder that has an identity has all that must be there to begin with
                replace_file(self._identity_file, json.dumps(self._identity, indent=1).encode())
        return DiskVault(self.folder / "checkpoints")

    def publish(self, overwrite: bool) -> None:
        """Give the finished result its name and remove everything else."""
        publish(self.result, self.out, overwrite)
        shutil.rmtree(self.folder)

    def _is_ours(self) -> bool:
        """Is the folder one that a run has left? Anything else there is the user's."""
        return self.folder.is_dir() and (
            self._identity_file.exists()
            or {p.name for p in self.folder.iterdir()} <= {"result.zarr"}
        )

    def _check_identity(self) -> None:
        try:
            found = json.loads(self._identity_file.read_text())
        except (FileNotFoundError, ValueError):
            self.resumed = False  # it was killed before it had begun
            return
        for name in sorted(self._identity.keys() | found.keys()):
            ours, theirs = self._identity.get(name), found.get(name)
            if ours != theirs:
                raise InputError(
                    f"resume: the unfinished run in {self.folder} has {name} = {theirs!r}, this "
                    f"one {ours!r}; call it with the same, or pass overwrite=True to start anew"
                )
