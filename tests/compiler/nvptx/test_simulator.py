"""The simulator notices what a GPU would not forgive."""

from __future__ import annotations

import numpy as np
import pytest

from simulator import SimulationError, simulate
from simulator.memory import SimulatedMemory

REDUCE = """
def k(x_ptr, y_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    tl.store(y_ptr + tl.arange(0, N), x - tl.max(x, 0))
"""
POINTERS = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16"}


def _arrays(n: int) -> list[np.ndarray]:
    return [np.arange(n, dtype=np.float32), np.zeros(n, np.float32)]


@pytest.fixture
def program(from_text):
    return from_text(REDUCE, POINTERS, {"N": 512}).program()


def test_the_program_itself_is_fine(program) -> None:
    x, y = _arrays(512)
    simulate(program.llvm, (1,), [x, y], 4, program.shared_bytes)
    np.testing.assert_array_equal(y, x - 511)


def test_large_unsigned_arguments(from_text) -> None:
    program = from_text("def k(x_ptr, n):\n    tl.store(x_ptr, n // 3)\n", {"x_ptr": "*u64", "n": "u64"}).program()
    x = np.zeros(1, np.uint64)
    simulate(program.llvm, (1,), [x, 2**64 - 2], 4)
    assert x[0] == (2**64 - 2) // 3


def test_parts_of_one_array_are_where_they_are_in_it(from_text) -> None:
    text = """
def k(x_ptr, y_ptr):
    tl.store(x_ptr + 2, 7.0)
    tl.debug_barrier()
    tl.store(y_ptr, tl.load(y_ptr) + 1)
"""
    program = from_text(text, {"x_ptr": "*fp32", "y_ptr": "*fp32"}).program()
    whole = np.zeros(80, np.float32)
    simulate(program.llvm, (1,), [whole[1:], whole[3:40]], 1)
    assert whole[3] == 8 and whole.sum() == 8
    with pytest.raises(SimulationError, match="outside every array"):
        simulate(program.llvm, (1,), [whole[1:3], whole[4:40]], 1)


@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize(
    ("value", "wanted"), [(0.0, {"min": "-0.0", "max": "0.0"}), (np.nan, {"min": "nan", "max": "nan"})]
)
def test_extremes_are_the_same_in_both_orders(from_text, name, value, wanted) -> None:
    """Lanes that hold one element combine the same two numbers, each its own first: zeros of both signs, and NaNs."""
    text = f"""
def k(x_ptr, y_ptr):
    x = tl.load(x_ptr + tl.arange(0, 64)[:, None] * 2 + tl.arange(0, 2)[None, :])
    tl.store(y_ptr + tl.arange(0, 2), tl.{name}(x, axis=0))
"""
    program = from_text(text, POINTERS).program()
    x, y = np.where(np.arange(128) % 3 == 0, value, -value).astype(np.float32), np.ones(2, np.float32)
    simulate(program.llvm, (1,), [x, y], 4, program.shared_bytes)
    assert [str(v) for v in y] == [wanted[name]] * 2


def test_a_missing_barrier(program) -> None:
    lines = program.llvm.splitlines()
    broken = "\n".join(line for line in lines if "call void @llvm.nvvm.barrier" not in line)
    assert broken.count("\n") < len(lines) - 1
    with pytest.raises(SimulationError, match="race in shared memory: thread .* with no barrier between"):
        simulate(broken, (1,), _arrays(512), 4, program.shared_bytes)


def test_an_access_outside_the_arrays(program) -> None:
    with pytest.raises(SimulationError, match="outside every array"):
        simulate(program.llvm, (1,), _arrays(511), 4, program.shared_bytes)


def test_too_little_shared_memory(program) -> None:
    with pytest.raises(SimulationError, match="shared memory access at .* is out of range"):
        simulate(program.llvm, (1,), _arrays(512), 4, 8)


def test_a_misaligned_vector(from_text) -> None:
    text = """
def k(x_ptr, y_ptr, start, N: tl.constexpr):
    offs = start + tl.arange(0, N)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs))
"""
    # The launch breaks the promise that start is a multiple of 16.
    program = from_text(text, {**POINTERS, "start": "i32:16"}, {"N": 512}).program()
    with pytest.raises(SimulationError, match="16 bytes at .* is not aligned"):
        simulate(program.llvm, (1,), [*_arrays(1024), 3], 4, program.shared_bytes)


def test_unknown_instructions() -> None:
    text = "define ptx_kernel void @k(i32 %a0) #0 {\nentry:\n  %v1 = fancy i32 %a0\n  ret void\n}\n"
    with pytest.raises(SimulationError, match="does not know 'fancy i32 %a0'"):
        simulate(text, (1,), [0], 1)


@pytest.fixture
def shared() -> SimulatedMemory:
    memory = SimulatedMemory("shared memory", 64, initialised=False)
    memory.valid[:] = True
    return memory


ALL = np.ones(32, np.bool_)
LANES = np.arange(32, dtype=np.int32)


def _store(memory: SimulatedMemory, addresses: np.ndarray, values: np.ndarray, threads: np.ndarray = LANES) -> None:
    memory.store(addresses, values.astype(np.int8)[:, None], 1, ALL, threads)


def _load(memory: SimulatedMemory, addresses: np.ndarray, threads: np.ndarray = LANES) -> None:
    memory.load(addresses, np.dtype(np.int8), 1, 1, ALL, threads)


def test_shared_memory_that_nobody_wrote(shared) -> None:
    with pytest.raises(SimulationError, match="shared memory is read before it was written"):
        _load(shared, LANES)


def test_threads_of_one_warp_race_too(shared) -> None:
    _store(shared, LANES, LANES)
    _load(shared, LANES)
    with pytest.raises(SimulationError, match="thread 0 reads byte 0x1f, which thread 31 wrote"):
        _load(shared, LANES[::-1])
    shared.clocks.meet()
    _load(shared, LANES[::-1])
    with pytest.raises(SimulationError, match="thread 0 writes byte 0x0, which thread 31 read"):
        _store(shared, LANES, LANES)


def test_several_threads_may_store_one_value_but_not_two_to_one_byte(shared) -> None:
    everywhere = LANES * 0
    _store(shared, everywhere, everywhere + 5)
    _store(shared, everywhere, everywhere + 5, LANES + 32)
    with pytest.raises(SimulationError, match="thread 0 writes byte 0x0, which several threads wrote"):
        _store(shared, everywhere, everywhere + 6)
    with pytest.raises(SimulationError, match="several lanes store different values"):
        _store(shared, everywhere + 8, LANES)


def test_atomics_race_with_plain_accesses_only(shared) -> None:
    def add_one(threads: list[int], places: list[int]) -> list[int]:
        where, ones = np.array(places, np.int64), np.ones(len(places), np.int8)
        old = shared.change(where, ones.dtype, np.add, [ones], np.array(threads, np.int32))
        return old.tolist()

    _store(shared, LANES, LANES)
    shared.clocks.meet()
    assert add_one([4, 5, 6, 7], [8, 10, 8, 9]) == [8, 10, 9, 9]
    shared.clocks.meet()
    assert add_one([3], [3]) == [3]
    assert add_one([40], [3]) == [4]
    _store(shared, LANES + 32, LANES)
    with pytest.raises(SimulationError, match="thread 9 changes byte 0x24, which thread 4 wrote"):
        add_one([9], [36])
    with pytest.raises(SimulationError, match="thread 3 reads byte 0x3, which thread 40 changed"):
        _load(shared, LANES)
