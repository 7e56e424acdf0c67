"""Loads and stores by themselves, on the simulator against NumPy: caches, masks, order, booleans and addresses."""

from __future__ import annotations

import numpy as np


def test_cache_modifiers_and_eviction(from_text, check_ptx) -> None:
    text = """
def k(x_ptr, y_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs, cache_modifier=".cg")
    x += tl.load(x_ptr + offs, eviction_policy="evict_first")
    x += tl.load(x_ptr + offs, volatile=True)
    tl.store(y_ptr + offs, x, cache_modifier=".wt")
    tl.store(y_ptr + offs, x, eviction_policy="evict_last")
"""
    sample = from_text(text, {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16"}, {"N": 512})
    for target in ("cuda:80", "cuda:90a", "cuda:120"):
        ptx = check_ptx(sample, target)
        for part in (
            "ld.global.cg.v4.b32",
            "ld.global.L1::evict_first.v4.b32",
            "ld.volatile.global.v4.b32",
            "st.global.wt.v4.b32",
            "st.global.L1::evict_last.v4.b32",
        ):
            assert part in ptx, part


def test_positions_may_differ_by_thread_in_ways_that_no_sum_has(from_text, simulated, rng) -> None:
    """Permuted, reshaped, joined and broadcast positions, sums of them, and sums that wrap."""
    text = """
def k(x_ptr, y_ptr, n, N: tl.constexpr):
    a = tl.arange(0, N)
    b = tl.reshape(tl.trans(tl.reshape(a + n, (16, N // 16))), (N,))
    c = (a[:, None] + tl.arange(0, 4)[None, :] * 1 + n) + tl.arange(4, 8)[None, :]
    d = a.to(tl.uint8) + (a + 250).to(tl.uint8)
    e = (a + 2147483000) + n
    tl.store(y_ptr + a, tl.load(x_ptr + b))
    tl.store(y_ptr + N + a, tl.sum(c, 1).to(tl.float32))
    tl.store(y_ptr + 2 * N + a, d.to(tl.float32))
    tl.store(y_ptr + 3 * N + a, (e // 1000).to(tl.float32))
"""
    x, y = rng.standard_normal(600).astype(np.float32), np.zeros(2048, np.float32)
    simulated(from_text(text, {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "n": "i32"}, {"N": 512}), (1,), [x, y, 30])
    a = np.arange(512)
    np.testing.assert_array_equal(y[:512], x[(a + 30).reshape(16, 32).T.reshape(-1)])
    np.testing.assert_array_equal(y[512:1024], 4 * (a + 30) + 6 + 22)
    np.testing.assert_array_equal(y[1024:1536], a.astype(np.uint8) + (a + 250).astype(np.uint8))
    wrapped = (a + 2147483000 + 30).astype(np.int32)
    np.testing.assert_array_equal(y[1536:], np.trunc(wrapped / 1000).astype(np.float32))


def test_masks_that_are_not_constant_over_a_vector_narrow_it(from_text, simulated) -> None:
    text = """
def k(x_ptr, y_ptr, n, N: tl.constexpr):
    offs = tl.arange(0, N)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=offs < n, other=7), mask=offs < n + 2)
"""
    sample = from_text(text, {"x_ptr": "*i8:16", "y_ptr": "*i8:16", "n": "i32"}, {"N": 256})
    x, y = np.arange(101, dtype=np.int8), np.zeros(103, np.int8)
    simulated(sample, (1,), [x, y, 101])
    np.testing.assert_array_equal(y, [*range(101), 7, 7])


def test_in_place_shift_waits_for_all_reads(from_text, simulated) -> None:
    text = """
def k(x_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    x = tl.load(x_ptr + offs)
    tl.store(x_ptr + (offs + 37) % N, x)
    y = tl.load(x_ptr + offs)
    tl.store(x_ptr + offs, y * 2)
"""
    sample = from_text(text, {"x_ptr": "*i32:16"}, {"N": 512})
    x = np.arange(512, dtype=np.int32)
    wanted = np.roll(x, 37) * 2
    simulated(sample, (1,), [x])
    np.testing.assert_array_equal(x, wanted)


def test_booleans_in_memory_and_as_arguments(from_text, simulated, check_ptx) -> None:
    text = """
def k(flag_ptr, out_ptr, invert, N: tl.constexpr):
    offs = tl.arange(0, N)
    flags = tl.load(flag_ptr + offs).to(tl.int1)
    tl.store(out_ptr + offs, flags ^ invert)
"""
    sample = from_text(text, {"flag_ptr": "*i1:16", "out_ptr": "*i1:16", "invert": "i1"}, {"N": 512})
    flags, out = np.arange(512) % 3 == 0, np.zeros(512, np.bool_)
    simulated(sample, (1,), [flags, out, 1])
    np.testing.assert_array_equal(out, ~flags)
    check_ptx(sample)


def test_pointers_made_from_integers(from_text, check_ptx) -> None:
    text = """
def k(table_ptr, out_ptr, N: tl.constexpr):
    offs = tl.arange(0, N)
    row = tl.load(table_ptr + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    rows = tl.load(table_ptr + offs).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + offs, tl.load(row + offs) + tl.load(rows))
"""
    sample = from_text(text, {"table_ptr": "*i64:16", "out_ptr": "*fp32:16"}, {"N": 256})
    for target in ("cuda:80", "cuda:90a"):
        check_ptx(sample, target)
