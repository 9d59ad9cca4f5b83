"""Fixtures shared by the tests."""

from __future__ import annotations

import gc
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from importlib import import_module
from multiprocessing import get_all_start_methods
from pathlib import Path
from typing import Any

import dask
import pytest
from cuda_on_cpu.emulator import ORDERS, Emulator, find_compiler
from distributed import Client, LocalCluster
from distributed.utils import get_mp_context
from hypothesis import settings
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from object_server import CREDENTIALS, S3Server, forget_connections
from programs import IMPORTED
from quick import draw_fewer_examples, is_quick, mark_beside_diagonals
from watched_raster import Gate

from orograph.arguments.settings import config
from orograph.tiles import local_storage, object_storage, patience
from orograph.tiles.system import lock_descriptor

# Tests run the same everywhere: kernels on a GPU are what benchmarks/gpu.py compares.
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["MPLBACKEND"] = "agg"

# What takes long on a busy machine, or at its first call, is right all the same.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# Begun before all others: the longest, which compile different kernels. Plans need kernels that the
# others have compiled by then.
LONGEST = (
    "pipeline/cli/test_cli.py",
    "kernels/relax/test_cuda.py",
    "kernels/boundary/test_cuda.py",
    "pipeline/distance/test_properties.py",
    "test_nothing_lost.py",
    "pipeline/operations/test_plan.py",
)


@pytest.hookimpl(tryfirst=True)  # what it marks `long` is then left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the quick suite a part of products and examples; put the longest files first.

    So no process of xdist is left with a long file at the end.
    """
    mark_beside_diagonals(items)
    if is_quick(config):
        draw_fewer_examples(items)
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="session", autouse=True)
def short_pauses() -> Iterator[None]:
    """Wait for a missing shard some milliseconds here, in place of seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patience, "PAUSES", (0.001,) * len(patience.PAUSES))
        yield


@pytest.fixture(scope="session", autouse=True)
def nothing_left() -> Iterator[None]:
    """Wait for what is deleted here, as tests look for it at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_storage, "SECONDS_TO_DELETE", 60.0)
        yield


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Keep what is there after a test out of later collections of garbage.

    A pass over all that a process has imported and compiled takes a second.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real rasters and other programs' results, if there is one beside this."""
    default = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
    folder = Path(os.environ.get("ORO_TEST_DATA", default)).resolve()
    if not (folder / "README.md").is_file():
        pytest.skip(f"shared data absent: no {folder}; set ORO_TEST_DATA to its place")
    return folder


@pytest.fixture(scope="session", autouse=True)
def no_cloud() -> Iterator[None]:
    """Let object stores be away, and soon said to be, unless a test starts a server."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}.items():
            patch.setenv(name, value)
        patch.setattr(object_storage, "_RETRIES", {"max_retries": 0})
        yield


@pytest.fixture(scope="session", autouse=True)
def no_boto3() -> Iterator[None]:
    """Let rasterio find no boto3, which moto alone brings: it makes a session for each file.

    That takes 15 ms where there are credentials. GDAL finds these by itself.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rasterio.session.boto3", None)
        yield


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A server of S3 in this process."""
    with S3Server() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of an empty bucket, for which the environment holds credentials."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    with forget_connections():
        yield s3_server.make_bucket()


@pytest.fixture
def object_memory() -> Iterator[str]:
    """Address in the empty ``memory://``."""
    with forget_connections():
        yield "memory://bucket"


@pytest.fixture(scope="session", autouse=True)
def tiles_of_their_own() -> Iterator[None]:
    """Let runs work on the tiles that they are given: joined ones would leave no borders to test.

    What joins them has tests of its own, which set `config["field"]`.
    """
    before = os.environ.get("OROGRAPH_FIELD")
    os.environ["OROGRAPH_FIELD"] = "0"  # of processes that tests start
    with config.set(field=0):
        yield
    if before is None:
        del os.environ["OROGRAPH_FIELD"]
    else:
        os.environ["OROGRAPH_FIELD"] = before


@pytest.fixture(scope="session", autouse=True)
def no_profiles() -> Iterator[None]:
    """Let workers profile no tasks: a hundred times a second that asks Python for all frames.

    Python 3.11 then waits for itself for ever if it looks for cycles meanwhile and frees a
    `threading.local` (https://github.com/python/cpython/issues/106883).
    """
    with dask.config.set({"distributed.worker.profile.enabled": False}):
        yield


@pytest.fixture(scope="session", autouse=True)
def forked_workers() -> Iterator[None]:
    """Fork workers from a process that has imported all: to start one anew takes seconds.

    Sessions that tests start in processes of their own start workers as they do elsewhere.
    """
    if "forkserver" not in get_all_start_methods():  # Windows
        yield
        return
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        # the first call sets a list of its own; the process starts with the first cluster
        get_mp_context().set_forkserver_preload(list(IMPORTED))
        yield


@pytest.fixture(scope="session")
def clients() -> Iterator[Callable[[int], Client]]:
    """A function that returns a client of so many workers, each a process of one thread.

    The tests of a process share them, as to start one takes a second of a processor. What kills a
    worker, or looks at what it holds, starts its own.
    """
    with ExitStack() as started:

        @cache
        def client_of(workers: int) -> Client:
            cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
            started.enter_context(cluster)
            return started.enter_context(Client(cluster, set_as_default=False))

        yield client_of


@pytest.fixture(scope="session")
def client(clients: Callable[[int], Client]) -> Client:
    """A client of two workers, which tests share."""
    return clients(2)


@pytest.fixture(scope="session", autouse=True)
def kernels_compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let a kernel that one process of xdist compiles be waited for by the others, and loaded."""
    folder = tmp_path_factory.getbasetemp().parent / "compiling"
    folder.mkdir(exist_ok=True)
    compile_here = CPUDispatcher.compile

    def wait_and_compile(dispatcher: Any, signature: Any) -> Any:
        function = dispatcher.py_func
        name = f"{function.__code__.co_filename} {function.__qualname__}{signature}"
        path = folder / hashlib.sha256(name.encode()).hexdigest()
        # Numba's own lock first, as of a kernel within another: threads would wait for one another
        with global_compiler_lock, open(path, "wb") as lock:
            lock_descriptor(lock.fileno())
            return compile_here(dispatcher, signature)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CPUDispatcher, "compile", wait_and_compile)
        yield


@pytest.fixture(params=ORDERS)
def emulator(request: pytest.FixtureRequest) -> Emulator:
    """A CUDA device on the CPU, once for each order in which threads take turns."""
    if find_compiler() is None:
        pytest.skip("no C++ compiler to run CUDA kernels on the CPU; install g++ or set CXX")
    return Emulator(request.param, seed=1)


@pytest.fixture
def emulated_gpu(monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """Let this process find a GPU, which is one on the CPU, so that ``backend="cuda"`` works."""
    from orograph.kernels import backends as registry
    from orograph.kernels import device as cuda

    # imported meanwhile, these would keep the function that stands in for `missing_gpu`
    for name in ("run.backends", "run.cluster.clusters", "run.cluster.first_worker"):
        import_module(f"orograph.{name}")
    if find_compiler() is None:
        pytest.skip("no C++ compiler to run CUDA kernels on the CPU; install g++ or set CXX")
    device = Emulator("random", seed=1)
    monkeypatch.setattr(cuda, "_gpu", lambda: device)
    monkeypatch.setattr(registry, "missing_gpu", lambda: None)
    return device


@pytest.fixture
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    """A gate, shut; it is opened at the end, so that nothing is left waiting at it."""
    gate = Gate(tmp_path_factory.mktemp("gate"))
    gate.shut()
    yield gate
    gate.open()
