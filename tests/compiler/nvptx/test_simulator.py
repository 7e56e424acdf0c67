"""The simulator notices what a GPU would not forgive."""

from __future__ import annotations

import numpy as np
import pytest

from simulator import SimulationError, simulate

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


def test_a_missing_barrier(program) -> None:
    lines = program.llvm.splitlines()
    broken = "\n".join(line for line in lines if "call void @llvm.nvvm.barrier" not in line)
    assert broken.count("\n") < len(lines) - 1
    with pytest.raises(SimulationError, match="shared memory is read before it was written"):
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


def test_divergent_branches_and_unknown_instructions() -> None:
    head = "define ptx_kernel void @k(i32 %a0) #0 {\nentry:\n"
    tid = "  %v1 = call range(i32 0, 32) i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
    branch = "  %v2 = icmp eq i32 %v1, 0\n  br i1 %v2, label %a, label %b\na:\n  ret void\nb:\n  ret void\n}\n"
    with pytest.raises(SimulationError, match="a branch diverges inside a warp"):
        simulate(head + tid + branch, (1,), [0], 1)
    with pytest.raises(SimulationError, match="does not know 'fancy i32 %a0'"):
        simulate(head + "  %v1 = fancy i32 %a0\n  ret void\n}\n", (1,), [0], 1)
