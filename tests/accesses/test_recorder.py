"""What kernels do to memory, element by element, and what a record leaves out."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.profiler.accesses import Wanted, recorded
from deuteron.profiler.accesses.analysis import array_numbers, operation_numbers


@deuteron.jit
def copy(x, y, n, bound, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < bound)


@deuteron.jit
def count(x, buckets, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(buckets + tl.load(x + i) % 4, 1)


@deuteron.jit
def transposed(x, y, stride, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    tile = tl.load(x + m[:, None] * stride + n[None, :])
    tl.store(y + n[:, None] * M + m[None, :], tl.trans(tile))


def aligned(rows: int, columns: int) -> np.ndarray:
    """Zeros from the beginning of a line on."""
    room = np.zeros(rows * columns + 32, np.float32)
    first = -room.__array_interface__["data"][0] // 4 % 32
    return room[first : first + rows * columns].reshape(rows, columns)


def test_every_element_is_recorded_where_it_is():
    x, y = np.arange(40, dtype=np.float32), np.zeros(40, np.float32)
    with recorded() as record:
        copy[(3,)](x, y, 37, 35, B=16)
    assert np.array_equal(y[:35], x[:35]) and not y[35:].any()
    (launch,) = record.launches
    assert (launch.kernel, launch.grid, launch.programs, record.ran) == ("copy", (3, 1, 1), 3, {"copy": 1})
    assert [(array.name, array.dtype, array.shape) for array in launch.arrays] == [
        ("x", "f32", (40,)),
        ("y", "f32", (40,)),
    ]
    assert [(op.kind, op.location.line - copy.fn.__code__.co_firstlineno) for op in launch.operations] == [
        ("load", 3), ("store", 3),
    ]  # fmt: skip
    for access in launch.accesses:
        array = launch.arrays[access.array]
        wanted = np.arange(16) + 16 * access.program
        assert array.name == "xy"[access.operation]
        assert ((access.addresses - np.uint64(array.start)) // 4).tolist() == wanted.tolist()
        assert access.active.tolist() == (wanted < (37, 35)[access.operation]).tolist()
        assert not access.outside.any()
    read, written = operation_numbers(launch)
    assert (read.executions, read.active, read.masked_off, read.traffic.asked) == (3, 37, 11, 4 * 37)
    assert (written.active, written.masked_off, written.outside) == (35, 13, 0)
    assert [(n.bytes_read, n.bytes_written) for n in array_numbers(launch)] == [(148, 0), (0, 140)]


def test_what_is_out_of_bounds_is_found_exactly():
    x, y = np.ones(40, np.float32), np.zeros(35, np.float32)
    with recorded() as record:
        copy[(3,)](x, y, 48, 48, B=16)
    (launch,) = record.launches
    found = {
        (access.array, int(address - launch.arrays[access.array].start) // 4)
        for access in launch.accesses
        for address in access.addresses[access.outside]
    }
    assert found == {(0, i) for i in range(40, 48)} | {(1, i) for i in range(35, 48)}
    assert y.all() and launch.outside == 21


def test_atomics_read_and_write():
    x, buckets = np.arange(32, dtype=np.int32), np.zeros(4, np.int32)
    with recorded() as record:
        count[(2,)](x, buckets, B=16)
    assert buckets.tolist() == [8] * 4
    (launch,) = record.launches
    assert [op.kind for op in launch.operations] == ["load", "atomic"]
    _, numbers = array_numbers(launch)
    assert (numbers.bytes_read, numbers.bytes_written) == (128, 128)
    assert (numbers.written.distinct, numbers.written.again, numbers.written.several) == (4, 8, 4)


def test_strided_rows_cost_sectors():
    x, y = aligned(32, 64), aligned(8, 32)
    with recorded() as record:
        transposed[(1,)](x, y, 64, M=32, N=8)
    read, written = operation_numbers(record.launches[0])
    # Warps of 32 elements are four rows of 8: 32 bytes each, all in a line of their own.
    assert (read.traffic.groups, read.traffic.asked, read.traffic.sectors, read.traffic.lines) == (8, 1024, 32, 32)
    assert (written.traffic.sectors, written.traffic.lines) == (32, 8)
    assert read.conflicts == (1, 8), "columns of a tile that is 8 words wide meet in 4 of 32 banks"


def test_only_what_is_wanted_is_recorded_and_all_of_it_runs():
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    wanted = Wanted(kernel="copy", launch=2, programs=frozenset({1}))
    with recorded(wanted) as record:
        for _ in range(3):
            count[(1,)](np.zeros(16, np.int32), np.zeros(4, np.int32), B=16)
            copy[(4,)](x, y, 64, 64, B=16)
    (launch,) = record.launches
    assert y.all() and record.ran == {"count": 3, "copy": 3}
    assert (launch.number, {access.program for access in launch.accesses}) == (4, {1})
    assert record.notes() == ["1 of 6 launches were asked for", "launch 4 of copy: 1 of 4 programs were asked for"]


def test_a_full_record_says_what_is_missing():
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    with recorded(Wanted(most_elements=50)) as record:
        copy[(4,)](x, y, 64, 64, B=16)
    (launch,) = record.launches
    assert y.all() and record.elements == 48
    assert (launch.left_out.accesses, launch.left_out.elements, launch.left_out.programs) == (5, 80, {1, 2, 3})
    (note,) = record.notes()
    assert "5 accesses with 80 elements, in 3 programs, are missing" in note and "48 elements are there" in note


def test_a_kernel_that_waits_for_ever_ends():
    @deuteron.jit
    def wait(flag):
        while tl.load(flag) == 0:
            pass

    with recorded(), pytest.raises(deuteron.compiler.errors.DeuteronError, match="still waits"):
        wait[(1,)](np.zeros(1, np.int32))
