"""Atomics whose old values are read, on the simulator against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from single_operations import DTYPES

ATOMIC = """
def k(out_ptr, old_ptr, x_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    old = tl.atomic_{kind}(out_ptr + offs % 4, tl.load(x_ptr + offs), mask=offs % 3 != 0)
    tl.store(old_ptr + offs, old, mask=offs % 3 != 0)
"""


@pytest.mark.parametrize("n", [16, 256])
@pytest.mark.parametrize(
    "kind, dtype",
    [
        ("add", "i32"),
        ("add", "fp32"),
        ("max", "fp32"),
        ("min", "fp32"),
        ("max", "i32"),
        ("xor", "i32"),
    ],
)
def test_atomics_happen_once_an_element(from_text, simulated, check_ptx, rng, kind, dtype, n) -> None:
    sample = from_text(
        ATOMIC.format(kind=kind),
        {"out_ptr": f"*{dtype}:16", "old_ptr": f"*{dtype}:16", "x_ptr": f"*{dtype}:16"},
        {"N": n},
    )
    x = rng.integers(-50, 50, n).astype(DTYPES[dtype])
    out, old = np.zeros(4, x.dtype), np.zeros(n, x.dtype)
    program = sample.program()
    from simulator import simulate

    # What was there before depends on the order, so the two orders are not compared.
    simulate(program.llvm, (1,), [out, old, x], program.num_warps, program.shared_bytes)
    function = {"add": np.add, "max": np.maximum, "min": np.minimum, "xor": np.bitwise_xor}[kind]
    wanted = np.zeros(4, x.dtype)
    active = np.arange(n) % 3 != 0
    function.at(wanted, np.arange(n)[active] % 4, x[active])
    np.testing.assert_array_equal(out, wanted)
    for place in range(4):
        mine = active & (np.arange(n) % 4 == place)
        assert (old[mine] == 0).any(), "somebody was first"
    check_ptx(sample)


def test_scalar_atomic_result_reaches_every_thread(from_text, simulated, check_ptx) -> None:
    text = """
def k(counter_ptr, out_ptr, N: tl.constexpr):
    ticket = tl.atomic_add(counter_ptr, 1)
    tl.store(out_ptr + ticket * N + tl.arange(0, N), ticket)
"""
    sample = from_text(text, {"counter_ptr": "*i32:16", "out_ptr": "*i32:16"}, {"N": 128})
    counter, out = np.zeros(1, np.int32), np.full((3, 128), -1, np.int32)
    simulated(sample, (3,), [counter, out])
    assert counter[0] == 3
    np.testing.assert_array_equal(out, np.repeat(np.arange(3), 128).reshape(3, 128))
    ptx = check_ptx(sample)
    assert "atom.global.gpu.acq_rel.add.u32" in ptx


def test_compare_and_swap(from_text, simulated, check_ptx) -> None:
    text = """
def k(lock_ptr, out_ptr):
    pid = tl.program_id(0)
    old = tl.atomic_cas(lock_ptr, pid, pid + 1, sem="relaxed", scope="cta")
    tl.store(out_ptr + pid, old)
"""
    sample = from_text(text, {"lock_ptr": "*i32:16", "out_ptr": "*i32:16"})
    lock, out = np.zeros(1, np.int32), np.full(4, -1, np.int32)
    simulated(sample, (4,), [lock, out])
    assert lock[0] == 4
    np.testing.assert_array_equal(out, [0, 1, 2, 3])
    assert "atom.global.relaxed.cta.cas.b32" in check_ptx(sample)
