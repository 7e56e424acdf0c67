"""Loops and branches with scalars, and with tiles that live in buffers updated in place."""

from __future__ import annotations

import numpy as np
import pytest

from deuteron.compiler.ir import Block, parse_type
from deuteron.compiler.options import Schedule
from deuteron.compiler.targets import cpu
from deuteron.compiler.tile import control
from deuteron.compiler.tile import elementwise as e
from deuteron.compiler.tile import memory as m
from deuteron.compiler.tile import shape as s


def scalars(k, *values):
    return [k.constant(v, "i32") for v in values]


def test_carried_tiles_that_swap(both, same):
    x, y = np.arange(64, dtype=np.float32), np.arange(64, dtype=np.float32) * 10

    def make(k, x, y):
        return k.loop(*scalars(k, 0, 5, 1), [x, y], lambda i, a, b: (b, a))

    found, _ = both(make, x, y)
    same(found[0], y)
    same(found[1], x)


def test_carried_tiles_that_read_each_other(both, same):
    x, y = np.arange(64, dtype=np.int32), np.ones(64, np.int32)

    def make(k, x, y):
        def body(i, a, b):
            return k.emit(e.Add(a, b)), k.emit(e.Sub(a, b))

        return k.loop(*scalars(k, 0, 7, 1), [x, y], body)

    found, wanted = both(make, x, y)
    for _ in range(7):
        x, y = x + y, x - y
    same(found[0], x)
    same(found[1], y)
    same(wanted[0], x)


def test_a_carried_tile_that_is_transposed_each_time(both, same):
    x = np.arange(256, dtype=np.int32).reshape(16, 16)

    def make(k, x):
        def body(i, a):
            return k.binary(e.Add, k.emit(s.Permute(a, (1, 0))), 1)

        return k.loop(*scalars(k, 0, 3, 1), [x], body)

    same(both(make, x)[0][0], x.T + 3)


def test_the_start_of_a_loop_stays_readable(both, same):
    x = np.arange(64, dtype=np.int32)

    def make(k, x):
        (last,) = k.loop(*scalars(k, 0, 3, 1), [x], lambda i, a: k.binary(e.Mul, a, 2))
        return last, k.emit(e.Sub(last, x))

    found, _ = both(make, x)
    same(found[0], x * 8)
    same(found[1], x * 7)


@pytest.mark.parametrize("lower,upper,step", [(0, 0, 1), (5, 2, 1), (0, 10, 3), (10, 0, -2), (-3, 4, 2)])
def test_ranges(both, lower, upper, step):
    x = np.zeros(8, np.int32)

    def make(k, x):
        def body(i, total):
            return k.binary(e.Add, k.binary(e.Mul, total, 3), i)

        return k.loop(*scalars(k, lower, upper, step), [x], body)

    wanted = 0
    for i in range(lower, upper, step):
        wanted = wanted * 3 + i
    assert (both(make, x)[0][0] == wanted).all()


def test_branches_that_make_tiles(both, same):
    x = np.arange(64, dtype=np.float32)

    def make(k, x):
        made = []
        for truth in (True, False):
            condition = k.constant(truth, "i1")
            twice = k.region([], lambda: k.binary(e.Mul, x, 2.0))
            negative = k.region([], lambda: k.emit(e.Neg(x)))
            made.append(k.emit(control.If(condition, twice, negative)))
        return made

    found, _ = both(make, x)
    same(found[0], x * 2)
    same(found[1], -x)


@pytest.mark.parametrize("trips", [0, 1, 2, 5])
@pytest.mark.parametrize("steps", [(64,), (3, 64), (-1,)])
def test_pointer_and_index_tiles_that_move_by_scalars(kernel, run, trips, steps):
    """p += step (twice, if there are two steps) and index += 5, as they were before, in and after the loop."""
    x, out, places = (kernel.parameter(n, f"*{t}") for n, t in (("x", "i32"), ("out", "i32"), ("places", "i32")))
    count = kernel.parameter("n", "i32")
    index = kernel.arange(16)
    start = kernel.pointers(x, index)
    total = kernel.constant(0, index.type)

    def body(i, p, k, total):
        moved = p
        for step in steps:
            moved = kernel.emit(e.AddPtr(moved, kernel.splat(kernel.constant(step, "i32"), (16,))))
        return moved, kernel.binary(e.Add, k, 5), kernel.emit(e.Add(total, kernel.load(p)))

    zero, one = scalars(kernel, 0, 1)
    last, indices, total = kernel.loop(zero, count, one, [start, index, total], body)
    kernel.store(kernel.pointers(out, index), total)
    kernel.store(kernel.pointers(places, index), indices)
    kernel.store(last, kernel.constant(-7, index.type))
    data = np.arange(1000, dtype=np.int32) ** 2 % 1009
    held, sums, found = data.copy(), np.zeros(16, np.int32), np.zeros(16, np.int32)
    run(kernel.function, [held[300:], sums, found, trips])
    wide, offset = np.arange(16), sum(steps)
    np.testing.assert_array_equal(sums, sum((data[300 + offset * t + wide] for t in range(trips)), np.zeros(16)))
    np.testing.assert_array_equal(found, wide + 5 * trips)
    data[300 + offset * trips + wide] = -7
    np.testing.assert_array_equal(held, data)


def test_a_branch_that_reads_what_was_computed_from_the_result_of_another(both):
    """The quotient is stored before the second branch: the first one's result has then been read for the last time."""
    x = np.arange(64, dtype=np.float32)

    def make(k, x):
        def total(y):
            return k.reduce(y, 0, lambda a, b: k.emit(e.Add(a, b)))[0]

        condition = k.constant(True, "i1")
        twice = k.region([], lambda: k.binary(e.Mul, x, 2.0))
        made = k.emit(control.If(condition, twice, k.region([], lambda: x)))
        powers = k.emit(e.Exp2(k.binary(e.Mul, made, 0.0625)))
        quotient = k.binary(e.Div, powers, total(powers))
        largest = k.region([], lambda: k.reduce(quotient, 0, lambda a, b: k.emit(e.Max(a, b)))[0])
        return k.emit(control.If(condition, largest, k.region([], lambda: k.constant(0.0, "f32"))))

    found, _ = both(make, x)
    powers = np.exp2(x / 8)
    np.testing.assert_allclose(found[0], powers.max() / powers.sum(), rtol=1e-5)


def test_a_loop_in_a_loop_with_one_tile(both, same):
    x = np.ones((8, 32), np.float32)

    def make(k, x):
        def outer(i, a):
            return k.loop(*scalars(k, 0, 3, 1), [a], lambda j, b: k.binary(e.Mul, b, 2.0))[0]

        return k.loop(*scalars(k, 0, 2, 1), [x], outer)

    same(both(make, x)[0][0], x * 64)


def test_while_with_a_tile(both, same):
    x = np.ones(32, np.int32)

    def make(k, x):
        types = [parse_type("i32"), x.type]
        before, body = Block(), Block()
        for block in (before, body):
            for type in types:
                block.add_argument(type)
        with k.build.into(before):
            go_on = k.less(before.args[0], 4)
            k.effect(control.Condition(go_on, (before.args[0], k.binary(e.Add, before.args[1], 1))))
        with k.build.into(body):
            k.effect(control.Yield((k.binary(e.Add, body.args[0], 1), k.binary(e.Mul, body.args[1], 2))))
        op = control.While((k.constant(0, "i32"), x), before, body)
        k.effect(op)
        return op.results

    value = x.copy()
    for _ in range(4):
        value = (value + 1) * 2
    found, wanted = both(make, x)
    same(found[1], value + 1)
    same(wanted[1], value + 1)


def test_a_tile_loaded_before_a_loop_that_overwrites_it(kernel, run):
    x, out = kernel.parameter("x", "*i32"), kernel.parameter("out", "*i32")
    where = kernel.rows(x, (64,))
    value = kernel.load(where)

    def body(i, total):
        kernel.effect(m.Store(where, kernel.constant(0, "tile<64xi32>")))
        return kernel.emit(e.Add(total, value))

    (total,) = kernel.loop(*scalars(kernel, 0, 3, 1), [kernel.constant(0, "tile<64xi32>")], body)
    kernel.store(kernel.rows(out, (64,)), total)
    data, found = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    run(kernel.function, [data, found])
    np.testing.assert_array_equal(found, np.arange(64) * 3)
    assert not data.any()


def test_a_chain_of_thousands_of_operations(both, same):
    x = np.arange(32, dtype=np.int32)

    def make(k, x):
        for i in range(3000):
            x = k.emit(e.Add(x, x)) if i % 100 == 0 else k.binary(e.Add, x, 1)
        return x

    found, wanted = both(make, x)
    same(found[0], wanted[0])


def test_volatile_loads_happen_where_they_are_written(kernel, run):
    x, out = kernel.parameter("x", "*i32"), kernel.parameter("out", "*i32")
    where = kernel.rows(x, (32,))
    value = kernel.emit(m.Load(where, None, None, "", "", True))
    kernel.store(where, kernel.constant(5, "tile<32xi32>"))
    kernel.store(kernel.rows(out, (32,)), value)
    data, found = np.arange(32, dtype=np.int32), np.zeros(32, np.int32)
    run(kernel.function, [data, found])
    np.testing.assert_array_equal(found, np.arange(32))


def test_the_text_of_a_loop_does_not_depend_on_where_its_values_lie(kernel):
    """What a region reads is stored before it, in the order of the reads: not in the order of addresses."""

    def text() -> str:
        k = type(kernel)()
        bases = [k.parameter(f"in{i}", "*f32") for i in range(8)]
        tiles = [k.load(k.rows(base, (64,))) for base in bases]

        def body(i, total):
            for tile in tiles:
                total = k.emit(e.Add(total, tile))
            return total

        (total,) = k.loop(*scalars(k, 0, 3, 1), [k.constant(0.0, "tile<64xf32>")], body)
        k.store(k.rows(bases[0], (64,)), total)
        return cpu.lower_to_llvm(k.function, Schedule()).llvm

    held, texts = [], set()
    for size in range(10):  # other objects in between, so that values lie elsewhere
        held.append([object() for _ in range(37 * size)])
        texts.add(text())
    assert len(texts) == 1
