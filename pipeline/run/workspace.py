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
from functools import partial
from typing import Any, NamedTuple, TypeVar

from orograph.run.checkpoints import StoredCheckpoints
from orograph.run.cluster.workers import Witness, witness_in
from orograph.tiles.concurrent_requests import at_once
from orograph.tiles.errors import (
    DamagedStoreError,
    InputError,
    OrographError,
    RunError,
    StoreExistsError,
)
from orograph.tiles.files import is_token
from orograph.tiles.format.codec import FORMAT
from orograph.tiles.format.metadata import REPORT, ArrayMetadata, read_metadata, run_of
from orograph.tiles.open_storage import open_storage
from orograph.tiles.raster.raster import Raster
from orograph.tiles.raster.version import UNVERSIONED
from orograph.tiles.storage import Location, Storage, is_missing_below
from orograph.tiles.store.lease import Lease
from orograph.tiles.store.publish import Publication, check_target, partial_storage
from orograph.tiles.store.verify import verify

T = TypeVar("T")
IDENTITY = "run.json"
RESULT = "result.zarr"


def check_unfinished(out: Storage) -> None:
    """Raise StoreExistsError if there is an unfinished run that would write a store."""
    folder = partial_storage(out)
    if folder.state(IDENTITY) is not None:
        raise _unfinished(folder)


def describe_left(out: Storage) -> str:
    """Return a clause on the unfinished run or the store at ``out``, with the next step."""
    folder = partial_storage(out)
    with suppress(OSError, OrographError):
        if folder.state(IDENTITY) is not None:
            operation = read_report(out).get("operation", "the operation")
            return (
                f"an unfinished run of {operation} is in {folder}: call {operation} again with the "
                "same arguments and resume=True to go on with it"
            )
        if out.exists():
            return "the store is there: og.open reads it"
    return ""


def read_report(out: Storage) -> dict[str, Any]:
    """Return the report that the unfinished run of a store has left, or else that of the store.

    Raises
    ------
    InputError
        If there is neither.
    """
    folder = partial_storage(out)
    unfinished = [folder.child(name) for name in folder.names()]
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


class Looked(NamedTuple):
    """An unfinished run, or a reason to refuse, found where a run is to write its store."""

    names: set[str] | None
    """Names in the folder of an unfinished run; None without such a run."""
    found: dict[str, Any] | None
    """Identity of the unfinished run; None if there is none, or it had not begun."""
    refused: Exception | None
    """Error that says why no store can be written there; None if one can."""


def look_at(out: Storage, overwrite: bool) -> Looked:
    """Look at the place of a store before a run; ``overwrite`` is that of `check_target`."""
    folder = partial_storage(out)

    def identity() -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(folder.get(IDENTITY))
            identity, token = dict(found["identity"]), str(found["token"])
            if is_token(token):  # else it might lead out of the folder
                return {"identity": identity, "token": token, "format": found["format"]}
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        return None

    def refused() -> Exception | None:
        try:
            check_target(out, overwrite)
        except (InputError, StoreExistsError) as error:
            return error
        return None

    return Looked(*at_once(out, folder.entries, identity, refused))


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
    looked
        What was seen there while the lease was asked for.

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
        looked: Looked | None = None,
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
        # where nothing was unfinished, another can have begun since, but then no claim is got
        if looked is None or looked.names is not None:
            looked = look_at(self.out, overwrite)
        self._in_the_way, found = looked.names is not None, looked.found
        if found is None and not all(map(is_token, looked.names or ())):
            raise StoreExistsError(
                f"out: {self.folder} is in the way and holds no unfinished run; move it away"
            )
        if found is not None and resume:
            self._check_identity(found["identity"])
            # A result under the final name that carries this token is that of the run, which was
            # killed before it could tidy up.
            self.token = found["token"]
            self.finished = run_of(self.out) == self.token
            if not self.finished:
                self._check_format(found["format"])
        if looked.refused is not None and not self.finished:
            raise looked.refused
        # What a published run has left may be replaced.
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

    @property
    def witness(self) -> Witness:
        """The object that workers look for, to check that they see this run's folder.

        In an object store it is the lease, which is there before the folder.
        """
        if self._lease is not None and self.out.etags:
            return witness_in(self._lease.place, self._lease.token, "")
        return witness_in(self.work, self.token)

    def open(
        self,
        create_result: Callable[[Storage, str], Mapping[str, ArrayMetadata]],
        files: Mapping[str, bytes] | None = None,
        check: Callable[[], None] = lambda: None,
        whole: bool = False,
    ) -> tuple[StoredCheckpoints, Mapping[str, ArrayMetadata]]:
        """Create the folder and an empty result, unless resuming.

        Return the checkpoint store and what ``create_result`` returns. ``files`` are put into the
        folder; ``check`` is called when they are there, or in an object store when the lease is.
        ``whole`` says that the metadata of the result, once there, tell whether all of it is.
        """
        checkpoints = self.work.child("checkpoints")
        puts = [partial(self.work.put, *file) for file in (files or {}).items()]
        if self.resumed:
            self._opened = True
            at_once(self.out, *puts, check)
            # Not known to be empty: tasks look for what the earlier run has saved.
            return StoredCheckpoints(checkpoints), {}
        if self._in_the_way:
            self.clear()
        entry = {"identity": self._identity, "token": self.token, "format": FORMAT}
        content = json.dumps(entry, indent=1).encode()
        identify = partial(self.folder.create, IDENTITY, content)
        begin = partial(create_result, self.result, self.token)

        def begin_first() -> Mapping[str, ArrayMetadata]:
            created = begin()
            identify()
            return created

        # with an identity there must be all that is needed to begin, or it can be told that it is
        # not: then the run is begun anew
        begins = [begin, identify] if whole else [begin_first]
        try:
            places = (self.folder, self.work, checkpoints)
            claims = [partial(place.claim, looked=True) for place in places]
            # Of several runs that begin at the same time one gets the claim of the folder. What
            # ``begin`` returns stands before the results of `identify`, if that is apart, and of
            # ``check``.
            found = at_once(self.out, *claims, *puts, *begins, check)
            created = found[-len(begins) - 1]
        except FileExistsError as error:
            if isinstance(error, StoreExistsError):
                raise
            # Both have names that this run has drawn, so nothing of the other one is removed.
            for begun in (self.work, self.result):
                begun.delete_all()
            raise StoreExistsError(
                f"out: another run has begun to write {self.out}; wait for it, or pass "
                "overwrite=True to start anew"
            ) from None
        self._opened = True
        return StoredCheckpoints(checkpoints, began_empty=True), created

    def leave(self, name: str, content: bytes) -> None:
        """Write a file where this run keeps its own, if that is there, for whoever looks for it."""
        if self.work.exists():
            self.work.put(name, content)

    def finish(
        self, attributes: Mapping[str, Any], known: Mapping[str, ArrayMetadata]
    ) -> tuple[Publication, Any]:
        """Read what must be known to publish the result; the arguments are of `Publication`.

        Return the publication, and the inventory of the folder.
        """
        result, out = self.result, self.out
        publication = partial(Publication.of, result, out, self._overwrite, attributes, known)
        found = at_once(out, publication, self.folder.inventory)
        return found[0], found[1]

    def publish(
        self,
        finished: tuple[Publication, Any],
        report: bytes | None,
        meanwhile: Callable[[], T],
    ) -> T:
        """Move the finished result, with a report, to its final name; remove the workspace.

        Return what ``meanwhile`` returns, which is called when the result has its name.
        """
        publication, inventory = finished
        # From the commit on the result is complete under its name. All that follows can be lost.
        publication.commit(self._lease, report)
        replaced = partial(self.out.delete_replaced, publication.last)
        found: T = at_once(self.out, replaced, partial(self._leave, inventory), meanwhile)[-1]
        return found

    def _leave(self, inventory: Any) -> None:
        """Delete the workspace of a published result.

        Whoever has taken the place of this run since has the folder too. What the inventory lists
        was there while this run held the lease.
        """
        self._opened = False
        with suppress(RunError):
            # Without an inventory all is deleted that is there, so it must still be this run's.
            if inventory is None and self._lease is not None:
                self._lease.check()
            self.folder.delete_all(first=IDENTITY, listed=inventory)
        if self.out.etags and self._lease is not None:
            self._lease.release()  # while the result is opened
            self._lease = None

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
        folder = partial(self.folder.delete_all, first=IDENTITY)
        at_once(self.out, folder, self.out.delete_unfinished)

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
        # The earlier run may have published while its folder was moved.
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
