"""Atomics, gathers, pointers as values, and grids."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl


@triton.jit
def hist(x_ptr, h_ptr, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = o < n
    x = tl.load(x_ptr + o, mask=m, other=0)
    b = tl.minimum(x.to(tl.int32), BINS - 1)
    tl.atomic_add(h_ptr + b, 1, mask=m)


@triton.jit
def hist_local(x_ptr, h_ptr, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    acc = tl.zeros((BINS,), tl.int32)
    bins = tl.arange(0, BINS)
    for s in range(tl.program_id(0) * BLOCK, n, BLOCK * tl.num_programs(0)):
        o = s + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + o, mask=o < n, other=255)
        acc += tl.sum((x[:, None] == bins[None, :]).to(tl.int32), 0)
    tl.atomic_add(h_ptr + bins, acc)


@triton.jit
def embed(ids, table, out, D, V, BLOCK_D: tl.constexpr):
    row = tl.program_id(0)
    idx = tl.load(ids + row).to(tl.int64)
    tl.device_assert(idx < V, "index out of range")
    for d in range(0, D, BLOCK_D):
        c = d + tl.arange(0, BLOCK_D)
        v = tl.load(table + idx * D + c, mask=(c < D) & (idx >= 0), other=0.0)
        tl.store(out + row * D + c, v, mask=c < D)


@triton.jit
def embed_bwd(ids, grad, gtable, D, BLOCK_D: tl.constexpr):
    row = tl.program_id(0)
    blk = tl.program_id(1)
    idx = tl.load(ids + row)
    c = blk * BLOCK_D + tl.arange(0, BLOCK_D)
    if idx != 0:
        g = tl.load(grad + row * D + c, mask=c < D)
        tl.atomic_add(gtable + idx * D + c, g, mask=c < D, sem="relaxed")


@triton.jit
def atomics(o_ptr, f_ptr, x_ptr, old_ptr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o)
    z = o * 0
    tl.atomic_max(o_ptr + z, x)
    tl.atomic_min(o_ptr + 1 + z, x)
    tl.atomic_and(o_ptr + 2 + z, x | 1)
    tl.atomic_or(o_ptr + 3 + z, x)
    tl.atomic_xor(o_ptr + 4 + z, x)
    tl.atomic_add(o_ptr + 5, tl.sum(x))
    tl.atomic_max(f_ptr + z, x.to(tl.float32) / 3)
    tl.atomic_min(f_ptr + 1 + z, x.to(tl.float32) / 3, mask=x > -5)
    old = tl.atomic_add(o_ptr + 6, 1)
    tl.store(old_ptr + old, 1)


@triton.jit
def ptrsel(a_ptr, b_ptr, o_ptr, which, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    p = tl.where(which == 0, a_ptr, b_ptr)
    if which == 1:
        q = a_ptr
    else:
        q = b_ptr
    r = a_ptr if which == 1 else b_ptr + 1
    tl.store(o_ptr + o, tl.load(p + o) + tl.load(q + o) * 2 + tl.load(r + o))


@triton.jit
def moved_by_truth(x_ptr, o_ptr, n, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + (o < n))
    y = tl.load((o >= n) + x_ptr)
    z = tl.load(x_ptr + 1 - (o < n))
    tl.store(o_ptr + o, x + 10 * y + 100 * z)


@triton.jit
def axes3(o_ptr, X, Y, Z):
    x = tl.program_id(0)
    y = tl.program_id(1)
    z = tl.program_id(2)
    tl.store(o_ptr + (z * tl.num_programs(1) + y) * tl.num_programs(0) + x, x + 10 * y + 100 * z)


@triton.jit(do_not_specialize=["n", "one"])
def nospec(x_ptr, o_ptr, n, one, sx, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o * sx, mask=o < n)
    tl.store(o_ptr + o, x + one, mask=o < n)


@triton.jit
def negstep(x_ptr, o_ptr, n, stride, BLOCK: tl.constexpr):
    h = tl.zeros((BLOCK,), tl.float32)
    o = tl.arange(0, BLOCK)
    for t in range(n - 1, -1, -1):
        h = h * 0.5 + tl.load(x_ptr + t * stride + o)
        tl.store(o_ptr + t * stride + o, h)
    i = n
    while i > 0:
        i -= 2
    tl.store(o_ptr + n * stride + o, i)
    s = 0
    for k in tl.range(10, 0, -3):
        s += k
    tl.store(o_ptr + (n + 1) * stride + o, s)


@triton.jit
def offs64(x_ptr, o_ptr, stride: tl.int64, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    base = x_ptr + pid * stride
    o = tl.arange(0, BLOCK).to(tl.int64)
    tl.store(o_ptr + pid * BLOCK + o, tl.load(base + o, o < n, 0.0))


def test_histograms(launch, rng) -> None:
    x = rng.integers(0, 20, 300).astype(np.uint8)
    got = launch(hist, (3,), x, np.zeros(16, np.int32), 300, BINS=16, BLOCK=128)[1]
    np.testing.assert_array_equal(got, np.bincount(np.minimum(x, 15), minlength=16))
    got = launch(hist_local, (2,), x, np.zeros(32, np.int32), 300, BINS=32, BLOCK=64)[1]
    np.testing.assert_array_equal(got, np.bincount(x, minlength=32))


def test_embedding_and_its_gradient(launch, normal, close) -> None:
    ids, table = np.array([3, 1, 0, -1, 3], np.int32), normal(5, 70)
    zeros = np.zeros((5, 70), np.float32)
    got = launch(embed, (5,), ids, table, zeros, 70, 5, BLOCK_D=32)[2]
    np.testing.assert_array_equal(got, np.where(ids[:, None] < 0, 0, table[ids]))
    ids, gradient, exact = np.array([3, 1, 0, 4, 3]), normal(5, 70), np.zeros((5, 70))
    np.add.at(exact, ids, gradient.astype(np.float64))
    exact[0] = 0
    close(launch(embed_bwd, (5, 2), ids, gradient, zeros, 70, BLOCK_D=64)[2], exact)


def test_atomics(launch, rng, close) -> None:
    x = rng.integers(-50, 50, 128).astype(np.int32)
    starts = np.array([-100, 100, -1, 0, 0, 0, 0], np.int32), np.array([-99, 99], np.float32)
    integers, floats, _, order = launch(atomics, (4,), *starts, x, np.zeros(4, np.int32), BLOCK=32)
    expected = [x.max(), x.min(), np.bitwise_and.reduce(x | 1), np.bitwise_or.reduce(x)]
    assert integers.tolist() == [*expected, np.bitwise_xor.reduce(x), x.sum(), 4]
    close(floats, np.array([x.max() / 3, x[x > -5].min() / 3]))
    assert order.tolist() == [1] * 4


@pytest.mark.parametrize("which", [0, 1])
def test_chosen_pointers(launch, normal, close, which) -> None:
    a, b = normal(33), normal(33)
    one, other = (a, b) if which == 0 else (b, a)
    third = b[1:] if which == 0 else a[:32]
    exact = one[:32].astype(np.float64) + 2 * other[:32].astype(np.float64) + third
    close(launch(ptrsel, (1,), a, b, np.zeros(32, np.float32), which, BLOCK=32)[2], exact)


def test_pointers_move_by_one_for_what_is_true(launch) -> None:
    x = np.array([2, 3], np.int32)
    below = np.arange(16) < 5
    got = launch(moved_by_truth, (1,), x, np.zeros(16, np.int32), 5, BLOCK=16)[1]
    np.testing.assert_array_equal(got, np.where(below, 3 + 20 + 200, 2 + 30 + 300))


def test_grids_of_three_axes_and_of_nothing(launch) -> None:
    z, y, x = np.ogrid[:2, :4, :3]
    zeros = np.zeros((2, 4, 3), np.int32)
    np.testing.assert_array_equal(launch(axes3, (3, 4, 2), zeros, 3, 4, 2)[0], x + 10 * y + 100 * z)


def test_an_empty_grid_does_nothing() -> None:
    zeros = np.zeros(4, np.int32)
    axes3[(0, 4, 2)](zeros, 3, 4, 2)
    assert not zeros.any()


def test_strides_of_any_value(launch, normal) -> None:
    x, zeros = normal(100), np.zeros(100, np.float32)
    got = launch(nospec, (2,), x, zeros, 100, 1, 1, BLOCK=64)[1]
    np.testing.assert_array_equal(got, x + np.float32(1))
    got = launch(nospec, (2,), x, zeros, 50, 1, 2, BLOCK=64)[1]
    np.testing.assert_array_equal(got[:50], x[::2] + np.float32(1))
    assert not got[50:].any()


def test_loops_that_count_down(launch, normal, close) -> None:
    x, exact, state = normal(7, 16), np.zeros((9, 16)), 0.0
    for t in range(6, -1, -1):
        state = exact[t] = state * 0.5 + x[t].astype(np.float64)
    exact[7], exact[8] = -1, 10 + 7 + 4 + 1
    close(launch(negstep, (1,), x, np.zeros((9, 16), np.float32), 7, 16, BLOCK=16)[1], exact)


def test_offsets_of_64_bits(launch, normal) -> None:
    x = normal(4, 30)
    got = launch(offs64, (4,), x, np.zeros((4, 32), np.float32), 30, 30, BLOCK=32)[1]
    np.testing.assert_array_equal(got, np.pad(x, ((0, 0), (0, 2))))


@triton.jit
def numbers_of_other_types(bytes_ptr, words_ptr, read_ptr, counts_ptr, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    tl.store(bytes_ptr + o, 300)
    tl.store(bytes_ptr + BLOCK + o, -2.7)
    tl.store(words_ptr + o, 0xFFFFFFFF)
    tl.store(words_ptr + BLOCK + o, 0x1FFFFFFFE)
    tl.store(read_ptr + o, tl.load(words_ptr + o, mask=o < 0, other=0x80000000))
    tl.atomic_add(counts_ptr + o, -1)


def test_numbers_are_converted_to_what_memory_holds(launch) -> None:
    """A number has a type of its own in Triton, and a store converts it as it converts tensors."""
    bytes_, words, read = np.zeros(32, np.int8), np.zeros(32, np.int32), np.zeros(16, np.int32)
    got = launch(numbers_of_other_types, (1,), bytes_, words, read, np.ones(16, np.uint32), BLOCK=16)
    np.testing.assert_array_equal(got[0], np.repeat([300 - 256, -2], 16))
    np.testing.assert_array_equal(got[1], np.repeat([-1, -2], 16))
    np.testing.assert_array_equal(got[2], np.full(16, -(2**31)))
    np.testing.assert_array_equal(got[3], np.zeros(16))


@triton.jit
def in_place(x_ptr, where_ptr, n, WHERE: tl.constexpr, BARRIER: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.arange(0, BLOCK)
    if WHERE == "read":
        places = tl.load(where_ptr + o, mask=o < n, other=0)
    elif WHERE == "divided":
        places = o // 24
    elif WHERE == "squared":
        places = (o - 100) * (o - 100)
    elif WHERE == "mirrored":
        places = o + (n - o)
    elif WHERE == "one":
        places = tl.zeros((BLOCK,), tl.int32) + n
    else:
        places = o * 3
    x = tl.load(x_ptr + places, mask=o < n, other=0)
    if BARRIER:
        tl.debug_barrier()
    tl.store(x_ptr + places, x * 2 + 1, mask=o < n)


WHERE = ["read", "divided", "squared", "mirrored", "one", "stepped"]


def places_and_results(rng: np.random.Generator, n: int, where: str) -> tuple[np.ndarray, ...]:
    """An array, the places that ``in_place`` reads where it is told to, and what the array is afterwards."""
    o = np.arange(n)
    read = rng.integers(0, 20, n)
    spread = {"read": read, "divided": o // 24, "squared": (o - 100) ** 2, "stepped": 3 * o}
    places = spread.get(where, np.full(n, n))
    x = rng.integers(-100, 100, 10001).astype(np.int32)
    exact = x.copy()
    exact[places] = x[places] * 2 + 1
    return x, read.astype(np.int32), exact


@pytest.mark.parametrize("where", WHERE)
def test_all_that_a_store_was_made_of_is_read_before_it(launch, rng, where: str) -> None:
    """Also where several elements of a tile are one place in memory, in different vectors or threads."""
    x, read, exact = places_and_results(rng, 200, where)
    got = launch(in_place, (1,), x, read, 200, WHERE=where, BARRIER=where != "stepped", BLOCK=256)[0]
    np.testing.assert_array_equal(got, exact)


@pytest.mark.parametrize("where", WHERE)
def test_a_tile_is_read_before_it_is_stored_without_a_barrier_on_the_cpu(rng, where: str) -> None:
    """Where a program is many threads this is a race."""
    x, read, exact = places_and_results(rng, 200, where)
    in_place[(1,)](x, read, 200, WHERE=where, BARRIER=False, BLOCK=256)
    np.testing.assert_array_equal(x, exact)


@triton.jit
def rows_in_place(x_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, TRANSPOSED: tl.constexpr):
    pointers = x_ptr + tl.arange(0, ROWS)[:, None] + tl.zeros((1, COLUMNS), tl.int32)
    if TRANSPOSED:
        pointers = tl.trans(pointers)
    tl.store(pointers, tl.load(pointers) * 2 + 1)


@pytest.mark.parametrize("transposed", [False, True])
def test_repeated_pointers_are_read_before_they_are_stored_on_the_cpu(transposed: bool) -> None:
    x = np.arange(16, dtype=np.int32)
    rows_in_place[(1,)](x, ROWS=16, COLUMNS=64, TRANSPOSED=transposed)
    np.testing.assert_array_equal(x, np.arange(16) * 2 + 1)


@triton.jit
def reversed_in_place(x_ptr, same_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    x = tl.load(x_ptr + o)
    tl.debug_barrier()
    tl.store(same_ptr + (N - 1 - o), x)


def test_what_stands_before_a_barrier_is_read_before_it() -> None:
    """Both pointers lead to one array, which nothing tells the compiler."""
    x = np.arange(512, dtype=np.int64)
    reversed_in_place[(1,)](x, x, N=512)
    np.testing.assert_array_equal(x, np.arange(512)[::-1])


@triton.jit
def wide_masks(x, out, stride, M: tl.constexpr, N: tl.constexpr):
    """Pointers to a row and to a column, read with masks and fillings of tiles."""
    rows, columns = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    column = tl.load(x + rows * stride, mask=(rows + columns) % 3 != 0, other=-1.0)
    row = tl.load(x + columns, mask=columns < N - 2, other=rows.to(tl.float32))
    one = tl.load(x, mask=rows * columns > 3, other=columns.to(tl.float32))
    tl.store(out + rows * N + columns, column + row * 100 + one * 10000)


@pytest.mark.parametrize(("m", "n"), [(4, 8), (64, 32), (1, 16)])
def test_masks_and_fillings_stretch_the_pointers(launch, rng, m: int, n: int) -> None:
    x = rng.integers(1, 90, (m, 64)).astype(np.float32)
    _, out, *_ = launch(wide_masks, (1,), x.reshape(-1), np.zeros((m, n), np.float32), 64, M=m, N=n)
    i, j = np.mgrid[:m, :n]
    column = np.where((i + j) % 3 != 0, x[i, 0], -1)
    row = np.where(j < n - 2, x[0, j], i)
    one = np.where(i * j > 3, x[0, 0], j)
    np.testing.assert_array_equal(out, column + row * 100 + one * 10000)


@triton.jit(do_not_specialize=["x_ptr", "z_ptr", "n", "xi", "zi"])
def moved_sums(x_ptr, z_ptr, n, xi, zi, xj: tl.constexpr, zj: tl.constexpr):
    i, j = tl.arange(0, 8)[:, None], tl.arange(0, 32)[None, :]
    m = i * 32 + j < n
    x = tl.load(x_ptr + i * xi + j * xj, mask=m, other=0.0)
    y = tl.load(x_ptr + i * xi + j * xj + 3, mask=m, other=0.0)
    tl.store(z_ptr + i * zi + j * zj, 2 * x + y, mask=m)


def test_programs_read_before_they_write(rng) -> None:
    """Two arrays of one buffer, each with steps of its own, apart or overlapping in any way: on the CPU, where a
    program is one thread, every element is made of what was there before."""
    steps = [((32, 1), (40, 1)), ((1, 8), (32, 1)), ((-32, 1), (32, 1)), ((64, 2), (-32, -1))]
    i, j = np.arange(8)[:, None], np.arange(32)[None, :]
    buffer = rng.normal(size=3200).astype(np.float32)
    for _ in range(200):
        (xi, xj), (zi, zj) = steps[rng.integers(len(steps))]
        at, to, n = 1200, 1200 + int(rng.integers(-450, 450)), int(rng.integers(1, 257))
        x, z, inside = at + i * xi + j * xj, to + i * zi + j * zj, i * 32 + j < n
        expected, got = buffer.copy(), buffer.copy()
        expected[z[inside]] = (2 * buffer[x] + buffer[x + 3])[inside]
        moved_sums[(1,)](got[at:], got[to:], n, xi, zi, xj, zj)
        np.testing.assert_array_equal(got, expected)


@triton.jit
def swapped_halves(x_ptr, z_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(z_ptr + i, tl.load(x_ptr + i) + 2 * tl.load(x_ptr + (i ^ (N // 2))))


def test_an_array_may_be_given_twice(rng) -> None:
    """What is gathered comes from before the stores, too."""
    x = rng.normal(size=1024).astype(np.float32)
    got = x.copy()
    swapped_halves[(1,)](got, got, N=1024)
    np.testing.assert_array_equal(got, x + 2 * np.roll(x, 512))


@triton.jit
def extrema(most_ptr, least_ptr, x_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    tl.atomic_max(most_ptr + i, x)
    tl.atomic_min(least_ptr + i, x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_atomic_extrema_go_by_the_order_of_bits(launch, dtype) -> None:
    """NaNs stay in memory, and -0.0 is below 0.0: IEEE 754's totalOrder, which atomics on the bits follow on a GPU."""
    bits = np.dtype(dtype.__name__.replace("float", "int"))
    values = np.array([0.0, 1.5, np.inf, np.nan], dtype)
    values = np.concatenate([values, -values])  # NumPy negates NaNs as well
    x, old = (np.ascontiguousarray(v).reshape(-1) for v in np.meshgrid(values, values))
    most, least, _ = launch(extrema, (1,), old, old, x, N=64)
    for got, larger in ((most, True), (least, False)):
        order = [np.where(v.view(bits) < 0, v.view(bits) ^ np.iinfo(bits).max, v.view(bits)) for v in (old, x)]
        expected = np.where((order[0] > order[1]) == larger, old, x)
        np.testing.assert_array_equal(got.view(bits), expected.view(bits))
