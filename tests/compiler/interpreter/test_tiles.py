"""Operations on whole tiles: shapes, reductions, scans, dots, the grid."""

import ml_dtypes
import numpy as np
import pytest

from deuteron.compiler.ir import REGISTRY, Block, Tile
from deuteron.compiler.ir.types import F32, I32
from deuteron.compiler.tile import control as c
from deuteron.compiler.tile import elementwise as e
from deuteron.compiler.tile import matmul
from deuteron.compiler.tile import program as p
from deuteron.compiler.tile import reduction as r
from deuteron.compiler.tile import shape as s

TILE = np.arange(32, dtype=np.int32).reshape(4, 8)

SHAPES = {
    s.Arange: (lambda build, x: s.Arange(-4, 4), np.array([-4, -3, -2, -1, 0, 1, 2, 3])),
    s.ExpandDims: (lambda build, x: s.ExpandDims(x, 1), TILE[:, None, :]),
    s.Reshape: (lambda build, x: s.Reshape(x, (2, 16)), TILE.reshape(2, 16)),
    s.Permute: (lambda build, x: s.Permute(x, (1, 0)), TILE.T),
    s.Join: (lambda build, x: s.Join(x, build.emit(e.Neg(x)).result), np.stack([TILE, -TILE], -1)),
}


@pytest.mark.parametrize("kind", SHAPES, ids=lambda kind: kind.mnemonic)
def test_shapes(apply, kind):
    make, expected = SHAPES[kind]
    (got,) = apply(lambda build, x: build.emit(make(build, x)).result, TILE)
    np.testing.assert_array_equal(got, expected)


def test_three_way_permute(apply):
    x = np.arange(64).reshape(2, 4, 8)
    (got,) = apply(lambda build, v: build.emit(s.Permute(v, (2, 0, 1))).result, x)
    np.testing.assert_array_equal(got, np.transpose(x, (2, 0, 1)))


def test_splat_and_broadcast(apply):
    (got,) = apply(lambda build, x: build.emit(s.Splat(x, (2, 4))).result, np.array(7))
    np.testing.assert_array_equal(got, np.full((2, 4), 7))
    (got,) = apply(lambda build, x: build.emit(s.Broadcast(x, (4, 8))).result, TILE[:, :1])
    np.testing.assert_array_equal(got, np.repeat(TILE[:, :1], 8, axis=1))


def test_split(apply):
    got = apply(lambda build, x: build.emit(s.Split(x)).results, TILE.reshape(16, 2))
    np.testing.assert_array_equal(got[0], np.arange(0, 32, 2))
    np.testing.assert_array_equal(got[1], np.arange(1, 32, 2))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_grid(apply, axis):
    def make(build):
        return [build.emit(op(axis)).result for op in (p.ProgramId, p.NumPrograms)]

    place, size = apply(make, grid=(2, 3, 4))  # the last program stores last
    assert (int(place), int(size)) == ((1, 2), (2, 3), (3, 4))[axis][0:1] + ((2, 3, 4)[axis],)


def combining(build, kinds, count=1):
    """A region that applies ``kinds[i]`` to the i-th pair."""
    block = Block()
    args = [block.add_argument(Tile(I32)) for _ in range(2 * count)]
    with build.into(block):
        made = [build.emit(kind(args[i], args[i + count])).result for i, kind in enumerate(kinds)]
        build.emit(c.Yield(tuple(made)))
    return block


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("kind", "reference"), [(e.Add, np.sum), (e.Max, np.max), (e.Xor, np.bitwise_xor.reduce)])
def test_reduce(apply, axis, kind, reference):
    x = np.random.default_rng(0).integers(-100, 100, (4, 8), dtype=np.int32)
    (got,) = apply(lambda build, v: build.emit(r.Reduce((v,), axis, combining(build, [kind]))).result, x)
    np.testing.assert_array_equal(got, reference(x, axis=axis))


def test_reduce_of_two_tiles(apply):
    x, y = TILE, -TILE
    got = apply(
        lambda build, a, b: build.emit(r.Reduce((a, b), 0, combining(build, [e.Add, e.Min], 2))).results,
        x,
        y,
    )
    np.testing.assert_array_equal(got[0], x.sum(0))
    np.testing.assert_array_equal(got[1], y.min(0))


def test_reduce_to_a_scalar_of_one_element(apply):
    (got,) = apply(
        lambda build, v: build.emit(r.Reduce((v,), 0, combining(build, [e.Add]))).result,
        np.array([5], np.int32),
    )
    assert got == 5


def test_control_flow_in_a_combining_region(apply):
    def make(build, x):
        block, then, otherwise = Block(), Block(), Block()
        a, b = (block.add_argument(Tile(I32)) for _ in range(2))
        with build.into(then):
            build.emit(c.Yield((a,)))
        with build.into(otherwise):
            build.emit(c.Yield((b,)))
        with build.into(block):
            less = build.emit(e.Compare(a, b, "lt")).result
            build.emit(c.Yield(build.emit(c.If(less, then, otherwise)).results))
        return build.emit(r.Reduce((x,), 1, block)).result

    x = np.random.default_rng(1).integers(-100, 100, (4, 8), dtype=np.int32)
    (got,) = apply(make, x)
    np.testing.assert_array_equal(got, x.min(1))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("kind", "reference"), [(e.Add, np.cumsum), (e.Max, np.maximum.accumulate)])
def test_scan(apply, kind, reference, axis, reverse):
    x = np.random.default_rng(2).integers(-100, 100, (4, 8), dtype=np.int32)
    (got,) = apply(
        lambda build, v: build.emit(r.Scan((v,), axis, reverse, combining(build, [kind]))).result,
        x,
    )
    flip = (lambda v: np.flip(v, axis)) if reverse else (lambda v: v)
    np.testing.assert_array_equal(got, flip(reference(flip(x), axis=axis)))


@pytest.mark.parametrize("masked", [False, True])
def test_histogram(apply, masked):
    rng = np.random.default_rng(3)
    x, mask = rng.integers(-2, 10, 64, dtype=np.int32), rng.integers(0, 2, 64).astype(bool)
    if masked:
        (got,) = apply(lambda build, v, m: build.emit(r.Histogram(v, 8, m)).result, x, mask)
    else:
        (got,) = apply(lambda build, v: build.emit(r.Histogram(v, 8)).result, x)
    counted = (x >= 0) & (x < 8) & (mask | (not masked))
    np.testing.assert_array_equal(got, np.bincount(x[counted], minlength=8))


def test_scan_keeps_the_order_of_its_operands(apply):
    """(a, b) -> b keeps the latest, (a, b) -> a the first: neither is commutative."""

    def make(build, x):
        made = []
        for which in (0, 1):
            block = Block()
            pair = [block.add_argument(Tile(I32)) for _ in range(2)]
            with build.into(block):
                build.emit(c.Yield((pair[which],)))
            made.append(build.emit(r.Scan((x,), 0, False, block)).result)
        return made

    first, latest = apply(make, np.array([3, 1, 2, 9], np.int32))
    assert first.tolist() == [3, 3, 3, 3]
    assert latest.tolist() == [3, 1, 2, 9]


def test_linear_recurrence(apply):
    """h = a h + b as a scan over pairs, against the loop that defines it."""

    def make(build, a, b):
        block = Block()
        a1, b1, a2, b2 = (block.add_argument(Tile(F32)) for _ in range(4))
        with build.into(block):
            product = build.emit(e.Mul(a1, a2)).result
            moved = build.emit(e.Add(build.emit(e.Mul(a2, b1)).result, b2)).result
            build.emit(c.Yield((product, moved)))
        return build.emit(r.Scan((a, b), 0, False, block)).results[1]

    a, b = np.random.default_rng(3).random((2, 16)).astype(np.float32)
    expected, h = [], 0.0
    for x, y in zip(a, b, strict=True):
        h = float(x) * h + float(y)
        expected.append(h)
    np.testing.assert_allclose(apply(make, a, b)[0], expected, rtol=1e-5)


def dot(apply, a, b, acc, precision="ieee"):
    return apply(lambda build, *v: build.emit(matmul.Dot(*v, precision)).result, a, b, acc)[0]


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "float64"])
def test_dot_of_floats(apply, name):
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((16, 32)).astype(dtype), rng.standard_normal((32, 8)).astype(dtype)
    acc = rng.standard_normal((16, 8)).astype(np.float64 if name == "float64" else np.float32)
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble) + acc
    rtol = 1e-13 if name == "float64" else 2**-24
    np.testing.assert_allclose(dot(apply, a, b, acc), exact.astype(np.float64), rtol=rtol, atol=1e-14)


def test_dot_of_bytes(apply):
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-128, 128, shape, dtype=np.int8) for shape in ((16, 32), (32, 8)))
    acc = rng.integers(-9, 9, (16, 8), dtype=np.int32)
    np.testing.assert_array_equal(dot(apply, a, b, acc), a.astype(int) @ b.astype(int) + acc)


def test_tf32_keeps_ten_bits_and_ieee_all(apply):
    a = np.full((1, 1), 1 + 2**-10 + 2**-11 + 2**-20, np.float32)  # of which tensor cores do not read the last two
    one, zero = np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)
    assert dot(apply, a, one, zero, "tf32") == 1 + 2**-10
    assert dot(apply, -a, one, zero, "tf32") == -1 - 2**-10
    assert dot(apply, one, a, zero, "tf32") == 1 + 2**-10
    assert dot(apply, a, one, zero, "ieee") == a
    assert dot(apply, a, one, zero, "tf32x3") == a
    assert np.isnan(dot(apply, np.full((1, 1), np.nan, np.float32), one, zero, "tf32"))


def test_f16_accumulator_is_rounded_once(apply):
    a = np.array([[2048, 1]], np.float16)
    b = np.array([[1], [1]], np.float16)
    assert dot(apply, a, b, np.array([[1]], np.float16)) == 2050


def test_every_tile_operation_is_tested_here():
    tested = {
        *SHAPES,
        s.Splat,
        s.Broadcast,
        s.Split,
        r.Reduce,
        r.Scan,
        r.Histogram,
        p.ProgramId,
        p.NumPrograms,
        matmul.Dot,
    }
    modules = {m.__name__ for m in (s, r, p, matmul)}
    assert tested == {op for op in REGISTRY.values() if op.__module__ in modules}
