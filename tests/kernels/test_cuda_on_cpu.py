"""The emulator in which the tests run CUDA kernels finds what it is there to find."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda_on_cpu.emulator import Emulator, EmulatorError, find_compiler

from orograph.kernels.device import CupyDevice
from orograph.tiles.errors import BackendError

PROBES = str(Path(__file__).parents[1] / "cuda_on_cpu" / "probes.cu")

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler; install g++")


def run(device: Emulator, kernel: str, threads: int, *arguments: Any, **options: Any) -> None:
    """Launch a probe in one block, or in ``blocks``."""
    grid = (options.pop("blocks", 1),)
    device.launch(PROBES, kernel, grid, (threads,), arguments, **options)


@pytest.mark.parametrize(
    ("order", "wrong"),
    [("forward", range(1)), ("reversed", range(20, 21)), ("random", range(15, 21))],
)
def test_a_missing_barrier_gives_wrong_values(order: str, wrong: range) -> None:
    cells = np.arange(256, dtype=np.int32)
    expected = np.r_[-1, cells[:-1]]
    failures = 0
    for seed in range(20):
        device, out = Emulator(order, seed), np.zeros(256, np.int32)
        run(device, "read_neighbour", 256, cells, out)
        failures += not np.array_equal(out, expected)
        run(device, "read_neighbour", 256, cells, out, defines={"FIXED": 1})
        np.testing.assert_array_equal(out, expected)
    assert failures in wrong


@pytest.mark.parametrize("order", ["forward", "reversed", "random"])
def test_a_missing_barrier_between_warps_gives_wrong_values(order: str) -> None:
    cells = np.arange(256, dtype=np.int32)
    failures = 0
    for seed in range(10):
        device, out = Emulator(order, seed), np.zeros(256, np.int32)
        run(device, "read_next_warp", 256, cells, out)
        failures += not np.array_equal(out, np.roll(cells, -32))
        run(device, "read_next_warp", 256, cells, out, defines={"FIXED": 1})
        np.testing.assert_array_equal(out, np.roll(cells, -32))
    assert failures == 10


def test_the_random_order_is_that_of_the_seed() -> None:
    cells = np.arange(256, dtype=np.int32)
    found = []
    for seed in (1, 1, 2):
        out = np.zeros(256, np.int32)
        run(Emulator("random", seed), "read_neighbour", 256, cells, out)
        found.append(out.tolist())
    assert found[0] == found[1] != found[2]


def test_a_divergent_barrier_is_reported(emulator: Emulator) -> None:
    message = r"divergent barrier: thread 0 waits at .*probes\.cu:\d+, thread 32 at .*probes\.cu"
    with pytest.raises(EmulatorError, match=message):
        run(emulator, "diverge", 64, np.zeros(2, np.int32))
    # and the next launch is none the worse for it
    run(emulator, "leave_early", 64, np.zeros(2, np.int32))


def test_threads_that_have_ended_are_not_waited_for(emulator: Emulator) -> None:
    out = np.zeros(3, np.int32)
    run(emulator, "leave_early", 70, out)
    left = np.array([t for t in range(70) if t % 5 != 1])
    votes = np.bincount(left // 32, weights=2.0 ** (left % 32))
    np.testing.assert_array_equal(out.view(np.uint32), votes)


def test_a_lane_that_does_not_come_is_reported(emulator: Emulator) -> None:
    with pytest.raises(EmulatorError, match=r"deadlock.*a vote at .*probes\.cu:\d+, mask 000000ff"):
        run(emulator, "wait_for_a_lane", 8, np.zeros(8, np.int32))


def test_warp_operations_that_do_not_match_are_reported(emulator: Emulator) -> None:
    with pytest.raises(EmulatorError, match=r"do not match: .*a shuffle at .*probes\.cu:\d+"):
        run(emulator, "mix_warp_operations", 32, np.zeros(2, np.int32))


def test_shared_memory_is_rubbish_at_first(emulator: Emulator) -> None:
    out = np.zeros((5, 64), np.uint32)
    run(emulator, "read_uninitialised", 64, out, blocks=5)
    expected = np.full((5, 64), 0xA5A5A5A5, np.uint32)
    expected[:, 7] = np.arange(5)
    np.testing.assert_array_equal(out, expected)


def test_lost_updates_are_lost(emulator: Emulator) -> None:
    out = np.zeros(1, np.int32)
    run(emulator, "lose_updates", 64, out)
    assert out[0] < 64


def test_atomics_of_64_bits(emulator: Emulator) -> None:
    keys = np.random.default_rng(1).integers(2**33, 2**64, 1000, np.uint64)
    out, top = np.array([2**64 - 1], np.uint64), np.array([-(2**63)], np.int64)
    run(emulator, "least", 128, keys, out, top, np.int32(900), blocks=8)
    assert out[0] == keys[:900].min()
    assert top[0] == keys[:900].view(np.int64).max()


def test_atomics_of_all_types(emulator: Emulator) -> None:
    weights = np.arange(96) / 4
    count, total = np.zeros(1, np.uint32), np.zeros(1)
    single, swapped = np.zeros(1, np.float32), np.zeros(1, np.int32)
    run(emulator, "count_all", 96, weights, count, total, single, swapped)
    assert (count[0], total[0], single[0], swapped[0]) == (96, weights.sum(), 48, 95)


@pytest.mark.parametrize("kind", ["int", "long long", "float", "double"])
def test_shuffles_and_dynamic_shared_memory(emulator: Emulator, kind: str) -> None:
    dtype = {"int": "i4", "long long": "i8", "float": "f4", "double": "f8"}[kind]
    values = np.arange(5000).astype(dtype) % 50
    out = np.zeros(3, dtype)
    shared = 8 * np.dtype(dtype).itemsize
    defines = {"NUMBER": kind}
    run(
        emulator,
        "add_up",
        256,
        values,
        out,
        np.int32(5000),
        blocks=3,
        defines=defines,
        shared=shared,
    )
    assert out.sum() == values.sum()


def test_shuffles_and_votes(emulator: Emulator) -> None:
    t = np.arange(32)
    values = (t * 1.5).astype(np.float32)
    out, votes = np.zeros((4, 32), np.float32), np.zeros((4, 32), np.uint32)
    run(emulator, "shuffle", 32, values, out, votes)
    np.testing.assert_array_equal(out[0], values[t // 2])
    np.testing.assert_array_equal(out[1], values[np.where(t < 3, t, t - 3)])
    np.testing.assert_array_equal(out[2], values[np.where(t % 8 < 5, t + 3, t) % 32])
    np.testing.assert_array_equal(out[3], values[t ^ 5])
    sets = [sum(1 << k for k in range(r, 32, 3)) for r in range(3)]
    np.testing.assert_array_equal(votes[0], np.array(sets)[t % 3])
    np.testing.assert_array_equal(votes[1], sets[0])
    np.testing.assert_array_equal(votes[2], 1)
    np.testing.assert_array_equal(votes[3], np.where(t < 8, 0xFF, 0x100))


def test_barriers_that_count(emulator: Emulator) -> None:
    out = np.zeros((96, 3), np.int32)
    run(emulator, "count_at_barriers", 96, out)
    np.testing.assert_array_equal(out, np.tile([20, 1, 0], (96, 1)))


def test_writing_behind_dynamic_shared_memory_is_reported(emulator: Emulator) -> None:
    run(emulator, "write_behind", 1, np.int32(9), shared=40)
    with pytest.raises(EmulatorError, match="written behind the 40 bytes"):
        run(emulator, "write_behind", 1, np.int32(10), shared=40)


def test_a_thread_may_wait_for_another_ones_atomic(emulator: Emulator) -> None:
    run(emulator, "wait_for_the_last", 64, np.zeros(1, np.uint32))


def test_waiting_for_ever_is_reported() -> None:
    with pytest.raises(EmulatorError, match="no thread gets on"):
        run(Emulator("random"), "wait_for_ever", 1, np.zeros(1, np.uint32))


def test_bits(emulator: Emulator) -> None:
    values = np.array([0, 1, 0x80000000, 0x3F812345, 0x00F0A000], np.uint32)
    out = np.zeros((5, 8), np.uint32)
    run(emulator, "bits", 5, values, out)
    for v, found in zip(values.tolist(), out.tolist()):
        low = v & -v
        assert found[0] == v.bit_count()
        assert found[1] == low.bit_length()
        assert found[2] == 32 - v.bit_length()
        assert found[3] == int(f"{v:032b}"[::-1], 2)
        both = v.to_bytes(4, "little") + (0x89ABCDEF).to_bytes(4, "little")
        assert found[4] == int.from_bytes(bytes(both[k] for k in (0, 4, 2, 6)), "little")
        assert found[5] == v * v >> 32
        assert found[6] == v
        assert found[7] == min(v, 7)


def test_multiplication_and_addition_are_not_fused(emulator: Emulator) -> None:
    x = np.array([1 + 2.0**-30, 1 - 2.0**-30, -1.0])
    out = np.full(1, np.nan)
    run(emulator, "multiply_add", 1, x, out)
    assert out[0] == x[0] * x[1] + x[2] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param((np.zeros(3), np.zeros(1)), "2 arguments for 3 parameters", id="too few"),
        pytest.param(
            (np.zeros(3, np.int32), np.zeros(1, np.int32), np.int64(3)),
            "argument 2 takes a int32, not int64 3",
            id="a wider scalar",
        ),
        pytest.param(
            (np.zeros(3, np.int32), np.zeros(1, np.int32), 3),
            "pass a NumPy scalar",
            id="a Python int",
        ),
        pytest.param(
            (np.zeros(3, np.int64), np.zeros(1, np.int32), np.int32(3)),
            "argument 0 takes an array to read of int32, not of int64",
            id="another element",
        ),
        pytest.param(
            (np.zeros(6, np.int32)[::2], np.zeros(1, np.int32), np.int32(3)),
            "not contiguous",
            id="strides",
        ),
        pytest.param(
            (np.zeros(3, np.int32), np.broadcast_to(np.int32(0), (1,)), np.int32(3)),
            "read-only",
            id="output that is read-only",
        ),
    ],
)
def test_arguments_that_the_kernel_does_not_take(arguments: Any, message: str) -> None:
    with pytest.raises(EmulatorError, match=message):
        run(Emulator(), "add_up", 32, *arguments, shared=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": (0,)}, r"grid: \(0,\)"),
        ({"grid": (1, 2**16)}, r"grid: \(1, 65536\)"),
        ({"block": (64, 32)}, "2048 threads"),
        ({"shared": 2**18}, "262144 bytes of shared memory; at most 232448"),
        ({"kernel": "no_such"}, "no kernel no_such"),
    ],
)
def test_launches_that_a_gpu_refuses(options: dict[str, Any], message: str) -> None:
    launch = {"kernel": "write_behind", "grid": (1,), "block": (1,), "arguments": (np.int32(0),)}
    with pytest.raises(EmulatorError, match=message):
        Emulator().launch(PROBES, **{**launch, **options})


def test_mistakes_in_a_file_are_told(tmp_path: Path) -> None:
    source = tmp_path / "broken.cu"
    source.write_text('extern "C" __global__ void broken(int* out) { out[0] = missing; }\n')
    with pytest.raises(EmulatorError, match=r"(?s)does not compile.*broken\.cu:1.*missing"):
        Emulator().launch(str(source), "broken", (1,), (1,), (np.zeros(1, np.int32),))


@pytest.mark.parametrize("fails", [False, True], ids=["recorded", "a launch fails"])
def test_a_thread_goes_on_with_its_own_stream_after_recording(fails: bool) -> None:
    done: list[str] = []

    class Stream:
        def __init__(self, name: str = "recorded", non_blocking: bool = False) -> None:
            self.name = name

        def use(self) -> None:
            done.append(f"use {self.name}")

        def begin_capture(self) -> None:
            done.append("begin")

        def end_capture(self) -> SimpleNamespace:
            done.append("end")
            return SimpleNamespace(launch=lambda: done.append("again"))

    def launches() -> None:
        done.append("launch")
        if fails:
            raise BackendError("no kernel")

    device = CupyDevice.__new__(CupyDevice)
    own = Stream("own")
    device._cupy = SimpleNamespace(
        cuda=SimpleNamespace(Stream=Stream, get_current_stream=lambda: own)
    )
    if fails:
        with pytest.raises(BackendError, match="no kernel"):
            device.repeatable(launches)
        assert done[-1] == "use own"
        return
    device.repeatable(launches)()
    assert done == ["use recorded", "begin", "launch", "end", "use own", "again"]


def test_the_emulator_records_arguments_as_a_gpu_does() -> None:
    device, values = Emulator(), [np.full(4, np.inf)]
    launched = device.launches
    number = np.int32(4)

    def launches() -> None:
        blocks, queues = number, np.full(4 * 32, -1, np.int32)
        device.launch(
            "relax/relax.cu", "list_blocks", (1,), (32,), (values[0], blocks, queues, control)
        )

    control = np.zeros(112, np.uint64)
    control[9] = np.array(np.inf).view(np.uint64)  # all keys are in the window
    again = device.repeatable(launches)
    assert device.launches == launched
    values[0][:2] = 1.0  # the array is the recorded one, the number what it was
    number = np.int32(1)
    again()
    again()
    assert device.launches == launched + 2
    assert control[48] == 4  # two blocks, listed twice
