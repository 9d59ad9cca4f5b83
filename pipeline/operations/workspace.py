"""The folder of an unfinished run on disk: its checkpoints and its incomplete result.

A run that writes to ``out`` works in ``out.partial``; only when everything is written does the
result take its name. So a store that exists under its name is complete, and a folder that ends in
``.partial`` holds all that is needed to go on:

    out.partial/run.json            what the run computes, and its token
    out.partial/<name>/             result.zarr, checkpoints, copies of inputs that were in memory

Every run that begins anew draws a token, and the result carries it too: a result that was published
just before everything was killed is known for what it is. The folder's name is drawn anew by a run
that is resumed too, which moves the folder. So a task of a stopped run, or of one whose place was
taken, that is still at work somewhere finds nothing to write to.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from orograph.execution.checkpoints import StoredCheckpoints
from orograph.tiles.errors import DamagedStoreError, InputError, RunError, StoreExistsError
from orograph.tiles.files import is_token
from orograph.tiles.format.codec import FORMAT
from orograph.tiles.format.metadata import REPORT, read_metadata, run_of
from orograph.tiles.raster.raster import Raster
from orograph.tiles.raster.version import UNVERSIONED
from orograph.tiles.storage import Location, Storage, is_missing_below, open_storage
from orograph.tiles.store.lease import Lease
from orograph.tiles.store.publish import check_target, partial_storage, publish
from orograph.tiles.store.verify import verify

IDENTITY = "run.json"
RESULT = "result.zarr"


def check_unfinished(out: Storage) -> None:
    """Raise StoreExistsError if there is an unfinished run that would write a store."""
    folder = partial_storage(out)
    if folder.exists() and folder.state(IDENTITY) is not None:
        raise _unfinished(folder)


def read_report(out: Storage) -> dict[str, Any]:
    """Return the report that the unfinished run of a store has left, or else that of the store.

    Raises
    ------
    InputError
        If there is neither.
    """
    folder = partial_storage(out)
    unfinished = [folder.child(name) for name in folder.names()] if folder.is_tree() else []
    for place in (*unfinished, out):
        with suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads(place.get(REPORT))
            return found
    raise InputError(f"out: no run has left a report in {out} or {folder}; is the address right?")


def _unfinished(folder: Storage) -> StoreExistsError:
    return StoreExistsError(
        f"out: an unfinished run is in {folder}; pass resume=True to go on with it, or "
        "overwrite=True to start anew"
    )


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
    lease
        The lease of ``out``, which the caller holds; None where no other writer can come.

    Raises
    ------
    StoreExistsError
        If ``out`` exists, or an unfinished run of it, and neither argument says what to do.
    InputError
        If the unfinished run computes something else.
    """

    def __init__(
        self,
        out: Location,
        identity: Mapping[str, Any],
        *,
        overwrite: bool,
        resume: bool,
        lease: Lease | None = None,
    ) -> None:
        self.out = open_storage(out)
        self.folder = partial_storage(self.out)
        self._identity = json.loads(json.dumps(identity))
        self._overwrite = overwrite
        self._lease = lease
        self._opened = False
        self.token = self._name = uuid.uuid4().hex
        _ = self.result  # raises if no store can stand there
        self.resumed = self.finished = False
        found = self._found()
        if found is not None and resume:
            self._check_identity(found["identity"])
            self.token = found["token"]
            self.finished = run_of(self.out) == self.token
            if not self.finished:
                self._check_format(found["format"])
        if not self.finished:
            check_target(self.out, overwrite)
        self._in_the_way = self.folder.exists()
        if found is not None and not (resume or overwrite or run_of(self.out) == found["token"]):
            raise _unfinished(self.folder)
        if found is not None and resume and not self.finished:
            self._take()

    @property
    def work(self) -> Storage:
        """Storage in which this run keeps its files."""
        return self.folder.child(self._name)

    @property
    def result(self) -> Storage:
        """Storage of the result store while it is being written."""
        return self._result_of(self._name)

    def _result_of(self, name: str) -> Storage:
        return self.out.staging(self.folder.child(name).child(RESULT), name)

    def open(self, create_result: Callable[[Storage, str], None]) -> StoredCheckpoints:
        """Create the folder and an empty result, unless resuming; return the checkpoint store."""
        checkpoints = self.work.child("checkpoints")
        if not self.resumed:
            if self._in_the_way:
                self.clear()
            try:
                self.folder.claim()
            except FileExistsError:
                raise StoreExistsError(
                    f"out: another run has begun to write {self.out}; wait for it, or pass "
                    "overwrite=True to start anew"
                ) from None
            self._opened = True
            self.work.claim()
            checkpoints.claim()
            create_result(self.result, self.token)
            # last: a folder that has an identity has all that must be there to begin with
            entry = {"identity": self._identity, "token": self.token, "format": FORMAT}
            self.folder.put(IDENTITY, json.dumps(entry, indent=1).encode())
        self._opened = True
        return StoredCheckpoints(checkpoints)

    def leave(self, name: str, content: bytes) -> None:
        """Write a file where this run keeps its own, if that is there, for whoever looks for it."""
        if self.work.exists():
            self.work.put(name, content)

    def publish(self, report: bytes | None = None) -> None:
        """Move the finished result, with a report, to its final name; remove the workspace."""
        publish(self.result, self.out, self._overwrite, self._lease, report)
        with suppress(RunError):  # whoever has taken the place of this run since has the folder too
            self.check()
            self.clear()

    def check(self, error: Exception | None = None) -> None:
        """Raise RunError if another run has taken over ``out``, or the workspace was removed.

        It is being removed if the run has ended by an ``error`` that misses a file of it.
        """
        if self._lease is not None:
            try:
                self._lease.check()
            except RunError:
                with suppress(InputError):  # the folder that held all of it is gone
                    self.out.check_place()
                    raise
        if self._opened and (is_missing_below(self.folder, error) or not self.work.exists()):
            raise RunError(
                f"{self.work}, where this run kept all it had, has been removed while it went on; "
                "nothing was published: start it anew"
            )

    def clear(self) -> None:
        """Remove the workspace, its identity first, so that a partial removal is not resumed."""
        self._opened = False
        self.folder.delete(IDENTITY)
        self.out.delete_unfinished()
        self.folder.delete_all()

    def _found(self) -> dict[str, Any] | None:
        """Read the identity of an unfinished run; None if there is none or it had not begun."""
        if not self.folder.exists():
            return None
        try:
            found: dict[str, Any] = json.loads(self.folder.get(IDENTITY))
            identity, token = dict(found["identity"]), str(found["token"])
            if is_token(token):  # else it might lead out of the folder
                return {"identity": identity, "token": token, "format": found["format"]}
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        if not (self.folder.is_tree() and all(map(is_token, self.folder.names()))):
            raise StoreExistsError(
                f"out: {self.folder} is in the way and holds no unfinished run; move it away"
            )
        return None

    def _take(self) -> None:
        """Rename the folder of the unfinished run so that only this run uses it.

        The run may be at work still, if its lease was taken over, or tasks of it on a cluster.
        Where nothing can be renamed, the folder stays.
        """
        for name in filter(is_token, self.folder.names()):
            held = self.folder.child(name)
            if self._is_resumable(self._result_of(name)):
                if not held.renames:
                    self._name = name
                while held.renames and held.exists():
                    with suppress(FileNotFoundError):  # its files come and go
                        self.work.commit(held)
                break
        self.resumed = self._is_resumable(self.result)
        self.finished = run_of(self.out) == self.token

    def _is_resumable(self, result: Storage) -> bool:
        """Return whether the unfinished result exists and its metadata can be read."""
        try:
            read_metadata(result, unfinished=True)
        except (DamagedStoreError, InputError):
            return False
        return run_of(result) == self.token

    def _check_format(self, found: object) -> None:
        if found != FORMAT:
            raise InputError(
                f"resume: the unfinished run in {self.folder} has checkpoints of format {found!r}, "
                f"this version of orograph reads format {FORMAT}; finish it with the version that "
                "began it, or pass overwrite=True to start anew"
            )

    def _check_identity(self, found: Mapping[str, Any]) -> None:
        for name in sorted(self._identity.keys() | found.keys()):
            ours, theirs = self._identity.get(name), found.get(name)
            if ours != theirs:
                raise InputError(
                    f"resume: the unfinished run in {self.folder} has {name} = {theirs!r}, this "
                    f"one {ours!r}; call it with the same, or pass overwrite=True to start anew"
                )


def refuse_unversioned(rasters: tuple[Raster, ...]) -> None:
    """Raise InputError if nothing tells whether an input has changed since a run was stopped."""
    for raster in rasters:
        if raster.fingerprint().startswith(UNVERSIONED):
            raise InputError(
                f"resume: neither an ETag nor a time is known of the input {raster}, so nothing "
                "tells whether it is still the same; pass overwrite=True to start anew, or ingest "
                "it first"
            )


def is_whole(copy: Storage) -> bool:
    """Return whether the stored copy of an input is complete and matches its checksums."""
    try:
        return verify(copy).ok
    except InputError:
        return False
