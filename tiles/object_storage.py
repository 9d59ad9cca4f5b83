"""Object storage: objects in a bucket of S3, Google Cloud or Azure, or in this process's memory.

An object store cannot rename, and two writers may put the same key at any time, one of them long
after it was stopped. So a store is written where it stays, below its address and a name of its
own; `ObjectStorage.commit` puts one small object, by a conditional put, that says which of these
the store is:

    s3://bucket/dem.zarr/zarr.json               the commit: a Zarr group that names the version
    s3://bucket/dem.zarr/store-<token>/...       the version: a Zarr store, whole and unchanged
    s3://bucket/dem.zarr.partial/...             what an unfinished run keeps, as on disk

Whoever reads ``s3://bucket/dem.zarr`` reads the version that the commit names. A late writer writes
to a version that no commit will name. A Zarr store that was copied to a bucket is read as it is.

obstore makes the requests; it takes credentials and endpoints from `StorageOptions`, or else from
the environment.

One idea, long: `Storage` without folders and without a rename.
"""

from __future__ import annotations

import errno
import json
import os
import re
import uuid
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from orograph.tiles.concurrent_requests import at_once, map_at_once
from orograph.tiles.errors import InputError
from orograph.tiles.files import Part
from orograph.tiles.object_options import MOST_RETRIES, StorageOptions, given_storage_options
from orograph.tiles.patience import PAUSES
from orograph.tiles.storage import Reader, State, Storage

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult, ObjectMeta
    from obstore.store import ClientConfig, ObjectStore, RetryConfig
    from zarr.core.buffer import Buffer

GROUP = "zarr.json"
CLAIM = ".claim"
"""Name of the object by which a root is claimed that holds nothing else."""
VERSION = re.compile("store-[0-9a-f]{32}")
_IN_PLACE = re.compile(r"(?:^|/)(?:store-[0-9a-f]{32}|[^/]*\.(?:partial|lease))(?:/|$)")
"""Pattern of the addresses below which objects are written in place, without a version."""
TAIL_BYTES = 2**15
"""Number of bytes read at once from an object's end: a shard's index, or all of a small one."""
KEYS_A_REQUEST = 1000
"""Greatest number of keys in a request to delete; S3 deletes those of one request in order."""
LONGEST_ADDRESS = 700
"""Greatest length of an address in bytes; stores allow 1024 in a key, and names are added to it."""
_CLIENT: ClientConfig = {"connect_timeout": "10s", "timeout": "120s", "allow_http": True}
"""Options of connections; HTTP without TLS is used only for endpoints that begin ``http://``."""
_RETRIES: RetryConfig = {
    "max_retries": MOST_RETRIES,
    "retry_timeout": timedelta(seconds=sum(PAUSES)),
}
# Azure does not support ranges that are counted from the end of an object.
_ANSWERS_NO_TAIL = {"az"}

T = TypeVar("T")

_versions: dict[ObjectStorage, str] = {}
"""Version that the commit of each storage names, as last seen; "" for one without a store."""
_heeding: set[tuple[str, StorageOptions]] = set()
"""Buckets that have been seen to heed conditions, and the options by which they were reached."""
_memory: list[ObjectStore] = []
"""Objects of ``memory://``."""


@lru_cache(maxsize=64)
def _connect(scheme: str, bucket: str, options: StorageOptions, process: int) -> ObjectStore:
    """Return the bucket's object store, one for each process and for some options."""
    try:
        from obstore.store import MemoryStore, from_url
    except ImportError:
        raise InputError(
            f"{scheme}://{bucket}: obstore is needed for {scheme}:// addresses; install it with "
            'pip install "orograph[cloud]"'
        ) from None
    if scheme == "memory":
        if not _memory:
            _memory.append(MemoryStore())
        return _memory[0]
    try:
        config: Any = options.of_store(scheme)
        client: Any = {**_CLIENT, **options.of_client()}
        retries: RetryConfig = {**_RETRIES, **options.of_retries()}
        store: ObjectStore = from_url(
            f"{scheme}://{bucket}", config=config, client_options=client, retry_config=retries
        )
    except Exception as error:  # an option that cannot be used, also one of the environment
        raise InputError(
            f"{scheme}://{bucket}: {options.without_secrets(_first_line(error))}; give the account "
            "and credentials by storage_options= or the environment"
        ) from None
    return store


@contextmanager
def _errors(address: str, options: StorageOptions) -> Iterator[None]:
    """Replace the exceptions of obstore by builtin ones that name the address."""
    from obstore import exceptions

    def said(error: Exception) -> str:
        return options.without_secrets(_first_line(error))

    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "there is no such object", address) from None
    except exceptions.AlreadyExistsError:
        raise FileExistsError(errno.EEXIST, "it exists already", address) from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, said(error), address) from None
    # What a failed condition means is for the caller to say.
    except exceptions.PreconditionError:
        raise
    # `check_conditions` takes ENOTSUP as a store without conditional puts.
    except (exceptions.NotSupportedError, NotImplementedError) as error:
        raise OSError(errno.ENOTSUP, said(error), address) from None
    except exceptions.BaseError as error:
        raise OSError(errno.EIO, said(error), address) from None


def _first_line(error: Exception) -> str:
    """Return the message that a server sent, or else the first line of that of obstore."""
    stated = re.search("<Code>([^<]*)</Code>.*?<Message>([^<]*)</Message>", str(error), re.DOTALL)
    return f"{stated[1]}: {stated[2]}" if stated else str(error).partition("\n")[0][:300]


@dataclass(frozen=True)
class ObjectStorage:
    """Storage below an address in an object store.

    Parameters
    ----------
    root : str
        ``s3://bucket/name``, ``gs://bucket/name``, ``az://container/name`` or ``memory://name``.
    options : StorageOptions, optional
        By default those of the call within which the storage is made.

    Raises
    ------
    InputError
        If the address names no place in a bucket.
    """

    root: str
    options: StorageOptions = field(repr=False)

    def __init__(self, root: str, options: StorageOptions | None = None) -> None:
        scheme, _, path = root.partition("://")
        parts = path.rstrip("/").split("/")
        # beside a whole bucket nothing could be written
        lacking = not all(parts) or (len(parts) == 1 and scheme.lower() != "memory")
        if lacking or {".", ".."} & set(parts):
            raise InputError(f"{root}: it names no place in a bucket; write {scheme}://bucket/name")
        object.__setattr__(self, "root", f"{scheme.lower()}://{'/'.join(parts)}")
        given = given_storage_options() if options is None else options
        object.__setattr__(self, "options", given)

    def __reduce__(self) -> Any:
        return _restored, (self.root, self.options.items)

    def __str__(self) -> str:
        return self.root

    @property
    def name(self) -> str:
        return self.root.rpartition("/")[2]

    # -- keys --------------------------------------------------------------------------------------

    @property
    def _scheme(self) -> str:
        return self.root.partition("://")[0]

    @property
    def _bucket(self) -> str:
        """Return the scheme and the bucket, which precede the keys."""
        path = self.root.partition("://")[2]
        return f"{self._scheme}://" + ("" if self._scheme == "memory" else path.partition("/")[0])

    @property
    def _store(self) -> ObjectStore:
        bucket = self._bucket.partition("://")[2]
        return _connect(self._scheme, bucket, self.options, os.getpid())

    def _path(self, key: str) -> str:
        """Return the path in the bucket of a key below the root, whatever the commit."""
        prefix = self.root.removeprefix(self._bucket).lstrip("/")
        return "/".join(part for part in (prefix, key) if part)

    def _address(self, path: str) -> str:
        return f"{self._bucket}{'' if self._scheme == 'memory' else '/'}{path}"

    @property
    def _in_place(self) -> bool:
        return _IN_PLACE.search(self.root.partition("://")[2]) is not None

    def _version(self, latest: bool = False) -> str:
        """Return the version that the commit names, or "" if there is none.

        ``latest``: read the commit, though it has been read before.
        """
        if self._in_place:
            return ""
        if latest or self not in _versions:
            with suppress(FileNotFoundError):
                self._note(self._fetch(self._path(GROUP))[0])
            if self not in _versions:
                return ""
        return _versions[self]

    def _note(self, content: bytes) -> str:
        """Keep and return the version that the group's metadata name, or ""."""
        _versions[self] = _version_in(content)
        return _versions[self]

    def _reading(self, key: str, read: Callable[[str], T]) -> T:
        """Read from the path of a key; again if another version has been committed meanwhile."""
        known = self in _versions
        version = self._version()
        try:
            return read(self._path(_join(version, key)))
        except FileNotFoundError:
            # A version that was read just now is current, so the object is missing. One that was
            # seen earlier may have been replaced and deleted since: the commit is read again, and
            # the object once more if the commit names another version.
            if not known or self._in_place:
                raise
            _versions.pop(self, None)
            if self._version() == version:
                raise
            return read(self._path(_join(self._version(), key)))

    # -- requests ----------------------------------------------------------------------------------

    def _fetch(self, path: str) -> tuple[bytes, State]:
        import obstore

        with _errors(self._address(path), self.options):
            found = obstore.get(self._store, path)
            return bytes(found.bytes()), self._state(found.meta)

    def _fetch_group(self) -> tuple[bytes, State]:
        """Read the metadata of the store that the commit names, or those in its place."""

        def read(key: str) -> tuple[bytes, State] | None:
            with suppress(FileNotFoundError):
                return self._fetch(self._path(key))
            return None

        # The version that was seen last is most likely still committed. Its metadata are read at
        # the same time as the commit, and used only if the commit names it.
        known = _versions.get(self)
        keys = [GROUP, f"{known}/{GROUP}"] if known else [GROUP]
        commit, *found = map_at_once(self, read, keys)
        if commit is None:
            raise FileNotFoundError(
                errno.ENOENT, "there is no such object", self._address(self._path(GROUP))
            )
        version = self._note(commit[0])
        if not version:
            return commit
        if version == known and found[0] is not None:
            return found[0]
        return self._fetch(self._path(f"{version}/{GROUP}"))

    def _head(self, path: str) -> State:
        import obstore

        with _errors(self._address(path), self.options):
            return self._state(obstore.head(self._store, path))

    def _put(self, path: str, parts: tuple[Part, ...], mode: Any = "overwrite") -> None:
        import obstore

        with _errors(self._address(path), self.options):
            content = b"".join(bytes(part) for part in parts)
            # in one request, so that the object is whole or is not there
            obstore.put(self._store, path, content, mode=mode, use_multipart=False)

    def _delete(self, paths: list[str]) -> None:
        import obstore

        if not paths:
            return
        with _errors(self._address(paths[0]), self.options):
            try:
                obstore.delete(self._store, paths)
            except FileNotFoundError:
                # S3 takes no notice of a missing key. Google Cloud and Azure report it, and may
                # then have left others.
                for path in paths if len(paths) > 1 else ():
                    with suppress(FileNotFoundError):
                        obstore.delete(self._store, path)

    def _list(self, path: str) -> Iterator[Any]:
        """Yield metadata of all objects below a path, a page at a time."""
        import obstore

        with _errors(self._address(path), self.options):
            for page in obstore.list(self._store, path or None):
                yield from page

    def _names(self, path: str) -> set[str]:
        """Return the names directly below a path, with one request for every thousand."""
        import obstore

        with _errors(self._address(path), self.options):
            found = obstore.list_with_delimiter(self._store, path)
            below = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
        return {one.rstrip("/")[len(path) + 1 :] for one in below} - {""}

    def _state(self, meta: ObjectMeta) -> State:
        return State(meta["size"], (self._address(meta["path"]), meta["e_tag"]))

    # -- objects -----------------------------------------------------------------------------------

    def get(self, key: str) -> bytes:
        return self.fetch(key)[0]

    def fetch(self, key: str) -> tuple[bytes, State]:
        if key == GROUP and not self._in_place:
            return self._fetch_group()
        return self._reading(key, self._fetch)

    def open(self, key: str) -> Reader:
        return self._reading(key, self._open)

    def _open(self, path: str) -> _ObjectReader:
        import obstore

        tail: NDArray[np.uint8] = np.empty(0, np.uint8)
        if self._scheme in _ANSWERS_NO_TAIL:
            return _ObjectReader(self, path, self._head(path), tail)
        try:
            with _errors(self._address(path), self.options):
                options: GetOptions = {"range": {"suffix": TAIL_BYTES}}
                found = obstore.get(self._store, path, options=options)
                tail = _array(found)
                return _ObjectReader(self, path, self._state(found.meta), tail)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        # an empty object has no ranges
        return _ObjectReader(self, path, self._head(path), tail)

    def state(self, key: str) -> State | None:
        try:
            return self._reading(key, self._head)
        except FileNotFoundError:
            return None

    def put(self, key: str, *parts: Part) -> None:
        self._put(self._path(_join(self._version(), key)), parts)

    def create(self, key: str, *parts: Part) -> None:
        self._put(self._path(_join(self._version(), key)), parts, "create")

    def put_if(self, key: str, state: State, *parts: Part) -> bool:
        from obstore.exceptions import PreconditionError

        path = self._path(_join(self._version(), key))
        try:
            self._put(path, parts, self._unchanged(path, state))
        except (PreconditionError, FileNotFoundError):
            return False
        return True

    def _unchanged(self, path: str, state: State) -> Any:
        """Return the condition of a request that an object has still this state.

        Google Cloud compares the number of the version, which belongs to an ETag.
        """
        from obstore import exceptions, head

        if self._scheme != "gs":
            return {"e_tag": _etag(state)}
        with _errors(self._address(path), self.options):
            meta = head(self._store, path)
        if meta["e_tag"] != _etag(state):
            raise exceptions.PreconditionError(f"{path} has been replaced")
        # The request compares the number that belongs to this ETag, so it fails as well if the
        # object is replaced from here on.
        return {"e_tag": meta["e_tag"], "version": meta["version"]}

    def delete_if(self, key: str, state: State) -> bool:
        # A DELETE has no conditions: the object is emptied first, if it is the same. Whoever
        # finds an empty one waits a while for its end.
        if not self.put_if(key, state):
            return False
        self.delete(key)
        return True

    def move(self, key: str, target: str) -> None:
        import obstore

        version = self._version()
        source = self._path(_join(version, key))
        with _errors(self._address(source), self.options):
            # Copy first: a kill before the delete leaves both keys, and the move can be repeated.
            obstore.copy(self._store, source, self._path(_join(version, target)))
        self._delete([source])

    def delete(self, key: str) -> None:
        self._delete([self._path(_join(self._version(), key))])

    def sync(self, *keys: str) -> None:
        """Do nothing: an object that is put survives."""

    # -- prefixes ----------------------------------------------------------------------------------

    def names(self, prefix: str = "") -> list[str]:
        found = self._reading(prefix, self._some_names)
        return [name for name in found if name != CLAIM and not self._is_version(prefix, name)]

    def _some_names(self, path: str) -> set[str]:
        """Return the names below a path; FileNotFoundError from a version that is gone."""
        found = self._names(path)
        # A listing of what does not exist is empty and no error. The error makes `_reading` look
        # for another commit.
        if not found and VERSION.search(path) and not self._in_place:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", self._address(path))
        return found

    def _is_version(self, prefix: str, name: str) -> bool:
        return not prefix and not self._in_place and VERSION.fullmatch(name) is not None

    def objects(self, prefix: str = "") -> Iterator[tuple[str, State]]:
        version = self._version()
        pages = self._list(self._path(_join(version, prefix)))
        first = next(pages, None)
        if first is None and (latest := self._version(latest=True)) != version:
            version = latest  # the store has been replaced
            pages = self._list(self._path(_join(version, prefix)))
        root = self._path(version)
        for meta in pages if first is None else chain([first], pages):
            key = meta["path"][len(root) + 1 :]
            name, _, rest = key.partition("/")
            if key.rpartition("/")[2] != CLAIM and not (rest and self._is_version("", name)):
                yield key, self._state(meta)

    def inventory(self) -> list[str]:
        return self._paths(self._path(""))

    def delete_all(self, prefix: str = "", first: str = "", listed: Any = None) -> None:
        version = self._version() if prefix else ""
        if not (prefix or self._in_place):
            first = GROUP  # from then on nothing is found
            _versions.pop(self, None)
        path = self._path(_join(version, prefix))
        paths = self._paths(path) if listed is None else listed
        self._delete_in_order(paths, f"{path}/{first or GROUP}")

    def _paths(self, path: str) -> list[str]:
        """Return the paths of all objects below a path."""
        return [meta["path"] for meta in self._list(path)]

    def _delete_in_order(self, paths: Sequence[str], first: str) -> None:
        """Delete objects, that of the path ``first`` before the others."""
        rest = [path for path in paths if path != first]
        leading = [first] if len(rest) < len(paths) else []
        # More keys take several requests, which may be answered in any order. So do fewer on Google
        # Cloud, with one for each key, and Azure, with one for 256.
        if len(paths) > KEYS_A_REQUEST or not self.root.startswith(("s3:", "memory:")):
            self._delete(leading)
            leading = []
        self._delete([*leading, *rest])

    def _delete_named(self, name: str) -> None:
        """Delete all below a name at the root, or the object of that name."""
        path = self._path(name)
        self._delete_in_order(self._paths(path) or [path], f"{path}/{GROUP}")

    def child(self, name: str) -> ObjectStorage:
        return ObjectStorage(f"{self.root}/{name}", self.options)

    def beside(self, suffix: str) -> ObjectStorage:
        return ObjectStorage(self.root + suffix, self.options)

    # -- whole stores ------------------------------------------------------------------------------

    def exists(self) -> bool:
        return self.entries() is not None

    def entries(self) -> set[str] | None:
        try:
            names = self._names(self._path(""))
        except OSError as error:
            raise InputError(
                f"{self.root}: the bucket cannot be read ({error.strerror}); check its name, the "
                "region or endpoint, and the credentials, as they are given or of the environment"
            ) from None
        found = {name for name in names if not self._is_version("", name)}
        return found - {CLAIM} if found else None

    def check_place(self) -> None:
        if len(self.root.encode()) > LONGEST_ADDRESS:
            raise InputError(
                f"{self.root[:60]}...: {len(self.root.encode())} bytes; an address has at most "
                f"{LONGEST_ADDRESS}: choose a shorter one"
            )

    def check_conditions(self, key: str) -> None:
        # The object exists, so a server that heeds conditions refuses both to create it and to
        # replace a version with an ETag that no object has.
        bucket = self._bucket, self.options
        if bucket in _heeding:
            return
        state = self.state(key)
        if state is None:
            return
        if _etag(state) is not None:
            try:
                self.create(key, b"")
            except FileExistsError:
                if not self.put_if(key, State(0, ("", '"none"'))):
                    _heeding.add(bucket)
                    return
            except OSError as error:
                if error.errno != errno.ENOTSUP:
                    raise
        # The object is of no use here, and a server that ignores a condition has emptied it.
        self.delete(key)
        raise InputError(
            f"{self.root}: this object store ignores the conditions If-None-Match and If-Match, by "
            "which writers are kept apart; update its server, or write to another"
        )

    def overlaps(self, other: Storage) -> bool:
        one, two = f"{self}/", f"{other}/"
        return one.startswith(two) or two.startswith(one)

    def claim(self, looked: bool = False) -> None:
        def others() -> set[str]:
            return set() if looked else self._names(self._path("")) - {CLAIM}

        def create() -> None:
            self._put(self._path(CLAIM), (), "create")

        # The conditional create succeeds for one of several that claim a root at the same time.
        # What else the listing finds was there before, and then the claim is withdrawn.
        found, _ = at_once(self, others, create)
        if any(not self._is_version("", name) for name in found):
            self._delete([self._path(CLAIM)])
            raise FileExistsError(errno.EEXIST, "it exists already", self.root)

    @property
    def renames(self) -> bool:
        return False

    def staging(self, place: Storage, name: str) -> ObjectStorage:
        if self._in_place:
            raise InputError(
                f"{self.root}: unfinished stores and leases have such names; choose another"
            )
        return self.child(f"store-{name}")

    def last_commit(self) -> _Commit:
        root, known = self._path(""), _versions.get(self, "")

        def read() -> tuple[State | None, str]:
            try:
                content, state = self._fetch(self._path(GROUP))
            except FileNotFoundError:
                return None, ""
            return state, self._note(content)

        def objects(version: str) -> list[str]:
            return self._paths(self._path(version)) if version else []

        # The version that was seen last is most likely the committed one: its objects are listed
        # while the commit is read, and listed again if the commit names another.
        (state, version), names, found = at_once(
            self, read, partial(self._names, root), partial(objects, known)
        )
        replaced = found if version == known else objects(version)
        return _Commit(state, version, replaced, names - {GROUP, version})

    def commit(self, staged: Storage, replace: bool = False, last: Any = None) -> None:
        from obstore.exceptions import PreconditionError

        seen: _Commit = last or self.last_commit()
        if not replace and (seen.state is not None or self.exists()):
            raise FileExistsError(errno.EEXIST, "it exists already", self.root)
        group, version = self._path(GROUP), str(staged).removeprefix(f"{self.root}/")
        # A store that was not written below this root is copied. Nothing names the copy before the
        # commit does, so a kill until then leaves the root as it was.
        if not VERSION.fullmatch(version):
            version = f"store-{uuid.uuid4().hex}"
            for key, _ in staged.objects():
                self._put(self._path(f"{version}/{key}"), (staged.get(key),))
        try:
            mode = "create" if seen.state is None else self._unchanged(group, seen.state)
            self._put(group, (_commit_of(version),), mode)
        except (PreconditionError, FileExistsError):
            # a request that succeeded may have been repeated, for want of an answer
            if self._version(latest=True) != version:
                raise FileExistsError(
                    errno.EEXIST, "another store has been committed there meanwhile", self.root
                ) from None
        _versions[self] = version
        if last is None:
            self.delete_replaced(seen)
        if str(staged) != f"{self.root}/{version}":
            staged.delete_all()

    def delete_unfinished(self) -> None:
        path = self._path("")
        # The commit is read anew: what it names by now must stay.
        version, names = at_once(self, partial(self._version, True), partial(self._names, path))
        others = [name for name in names if self._is_version("", name) and name != version]
        map_at_once(self, self._delete_named, others)

    def delete_replaced(self, last: Any) -> None:
        """Delete everything below the root except the commit and the version that it names."""
        seen: _Commit = last
        version = self._version()
        # `others` was listed before the commit, so the new version is among these names.
        names = [partial(self._delete_named, name) for name in seen.others - {version}]
        group = self._path(f"{seen.version}/{GROUP}")
        paths = [] if seen.version == version else seen.replaced
        at_once(self, partial(self._delete_in_order, paths, group), *names)

    @property
    def etags(self) -> bool:
        return True

    def zarr_store(self) -> Any:
        from zarr.storage import MemoryStore

        # zarr-python's store in memory works on any mutable mapping, so also on one of objects.
        return MemoryStore(_Buffers(self))


def _restored(root: str, items: tuple[tuple[str, str | bool], ...]) -> ObjectStorage:
    """Return a storage that was pickled, with its own options and not those of the call."""
    return ObjectStorage(root, StorageOptions(items))


class _Commit(NamedTuple):
    """The commit of a root at the time when it was read."""

    state: State | None
    """State of the commit's object; None: there was no commit."""
    version: str
    """Version that the commit named; "" if there was none."""
    replaced: list[str]
    """Paths of the objects of the commit's version, which the next one replaces."""
    others: set[str]
    """Names at the root other than those of the commit."""


@dataclass(frozen=True)
class _ObjectReader:
    """Reader of one version of an object, of which the tail has been read."""

    storage: ObjectStorage
    path: str
    state: State
    kept: NDArray[np.uint8]
    held: tuple[tuple[int, NDArray[np.uint8]], ...] = ()
    """Other parts of the object that have been read, each after its offset."""

    def range(self, offset: int, length: int) -> NDArray[np.uint8]:
        import obstore
        from obstore.exceptions import PreconditionError

        size = self.state.size
        if offset + length > size:
            raise ValueError(f"the object ends at byte {size}, not at {offset + length}")
        first = size - len(self.kept)
        if offset >= first or not length:
            return self.kept[max(offset - first, 0) :][:length]
        for begin, content in self.held:
            if begin <= offset and offset + length <= begin + len(content):
                return content[offset - begin :][:length]
        # By If-Match all ranges come from one version, so a shard's index is that of its tiles.
        options: GetOptions = {"range": (offset, offset + length), "if_match": _etag(self.state)}
        try:
            with _errors(self.storage._address(self.path), self.storage.options):
                found = obstore.get(self.storage._store, self.path, options=options)
                return _array(found)
        except (PreconditionError, FileNotFoundError):
            raise ValueError("the object has been replaced while it was read") from None

    def tail(self, length: int) -> NDArray[np.uint8]:
        length = min(length, self.state.size)
        return self.range(self.state.size - length, length)

    def only_tail(self, length: int) -> _ObjectReader | None:
        if len(self.kept) == self.state.size or len(self.kept) < length:
            return None
        # The copy does not keep the rest of the tail in memory.
        return _ObjectReader(self.storage, self.path, self.state, self.kept[-length:].copy())

    def holding(self, ranges: Sequence[tuple[int, int]]) -> _ObjectReader:
        contents = map_at_once(self.storage, lambda part: self.range(*part), ranges)
        offsets = [offset for offset, _ in ranges]
        return replace(self, held=tuple(zip(offsets, contents, strict=True)))

    def __enter__(self) -> _ObjectReader:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: no connection is kept open."""


@dataclass
class _Buffers(MutableMapping[str, "Buffer"]):
    """Objects of a storage in the form that zarr-python's store in memory keeps."""

    storage: Storage

    def __getitem__(self, key: str) -> Buffer:
        from zarr.core.buffer import default_buffer_prototype

        try:
            content = self.storage.get(key)
        except FileNotFoundError:
            raise KeyError(key) from None
        return default_buffer_prototype().buffer.from_bytes(content)

    def __setitem__(self, key: str, value: Buffer) -> None:
        self.storage.put(key, value.to_bytes())

    def __delitem__(self, key: str) -> None:
        self.storage.delete(key)

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self.storage.objects())

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _array(found: GetResult) -> NDArray[np.uint8]:
    content: Any = found.bytes()  # a buffer, of which nothing is copied
    return np.frombuffer(content, np.uint8)


def _join(version: str, key: str) -> str:
    return "/".join(part for part in (version, key) if part)


def _etag(state: State) -> str | None:
    assert isinstance(state.version, tuple)
    etag: str | None = state.version[1]
    return etag


def _commit_of(version: str) -> bytes:
    """Return the commit: the metadata of a Zarr group in which the store is a group."""
    entry = {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {"orograph_version": version},
    }
    return json.dumps(entry).encode()


def _version_in(content: bytes) -> str:
    """Return the version that a commit names; "" for the metadata of a store."""
    try:
        version = json.loads(content)["attributes"]["orograph_version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return version if isinstance(version, str) and VERSION.fullmatch(version) else ""
