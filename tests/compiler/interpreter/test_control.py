"""Control flow, printing, assertions, and evaluation while building."""

import numpy as np
import pytest

from deuteron.compiler.errors import KernelAssertionError, Location, MemoryAccessError
from deuteron.compiler.ir import REGISTRY, Block, Pointer, Tile, parse_function
from deuteron.compiler.ir.types import F32, I32
from deuteron.compiler.targets.interpreter import EagerBuilder, Memory, evaluates, run
from deuteron.compiler.tile import control as c
from deuteron.compiler.tile import debug as d
from deuteron.compiler.tile import elementwise as e
from deuteron.compiler.tile import memory as m
from deuteron.compiler.tile import program as p
from deuteron.compiler.tile import reduction as r
from deuteron.compiler.tile import shape as s
from deuteron.compiler.tile.assembly import EffectfulAssembly, InlineAssembly

LOOP = """
func @f(%out: *i32, %lower: T, %upper: T, %step: T) {
  %z = constant {value = 0, type = i32} : i32
  %one = constant {value = 1, type = i32} : i32
  %n, %last = for %lower %upper %step inits=[%z, %lower] {num_stages = 0, unroll = 1} : i32, T body=(%i: T, %k: i32, %l:
  T) {
    %k1 = add %k %one : i32
    yield values=[%k1, %i]
  }
  %q = addptr %out %one : *i32
  %w = cast %last {to = type(i32), rounding = "rtne"} : i32
  store %out %n
  store %q %w
}
"""


@pytest.mark.parametrize("bounds", [(0, 5, 1), (3, 10, 4), (5, 5, 1), (7, 2, 1), (5, -5, -3), (0, 5, -1)])
@pytest.mark.parametrize("type", ["i32", "i64"])
def test_for_counts_as_range_does(bounds, type):
    out = np.zeros(2, np.int32)
    run(parse_function(LOOP.replace("T", type)), (1,), [out, *bounds])
    steps = range(*bounds)
    assert out.tolist() == [len(steps), steps[-1] if len(steps) else bounds[0]]


def test_step_of_zero():
    with pytest.raises(KernelAssertionError, match="step of the for loop .* is zero"):
        run(parse_function(LOOP.replace("T", "i32")), (1,), [np.zeros(2, np.int32), 0, 5, 0])


COLLATZ = """
func @collatz(%out: *i32, %n: i32) {
  %z = constant {value = 0, type = i32} : i32
  %one = constant {value = 1, type = i32} : i32
  %two = constant {value = 2, type = i32} : i32
  %three = constant {value = 3, type = i32} : i32
  %x, %k = while inits=[%n, %z] : i32, i32 before=(%a: i32, %b: i32) {
    %go = compare %a %one {predicate = "gt"} : i1
    condition %go values=[%a, %b]
  } body=(%c: i32, %d: i32) {
    %bit = and %c %one : i32
    %odd = compare %bit %one {predicate = "eq"} : i1
    %next = if %odd : i32 then=() {
      %t = mul %c %three : i32
      %u = add %t %one : i32
      yield values=[%u]
    } otherwise=() {
      %h = int_div %c %two : i32
      yield values=[%h]
    }
    %d1 = add %d %one : i32
    yield values=[%next, %d1]
  }
  store %out %k
}
"""


@pytest.mark.parametrize(("start", "steps"), [(1, 0), (6, 8), (27, 111)])
def test_while_and_if(start, steps):
    out = np.zeros(1, np.int32)
    run(parse_function(COLLATZ), (1,), [out, start])
    assert out[0] == steps


def printed(apply, make, *arrays, grid=(1,)):
    def build_all(build, *tiles):
        made = make(build, *tiles)
        build.emit(made)
        return tiles

    apply(build_all, *arrays, grid=grid)
    return apply.printed


def test_print_shows_every_element_of_every_program(apply):
    x = np.array([[1, -2]], np.int32)
    assert printed(apply, lambda build, v: d.Print((v,), "x"), x, grid=(1, 2)) == [
        "pid (0, 0, 0) idx (0, 0) x: 1",
        "pid (0, 0, 0) idx (0, 1) x: -2",
        "pid (0, 1, 0) idx (0, 0) x: 1",
        "pid (0, 1, 0) idx (0, 1) x: -2",
    ]


def test_print_of_scalars_floats_hexadecimals_and_several_values(apply):
    x, y = np.array(1.5, np.float32), np.array(-1, np.int16)
    assert printed(apply, lambda build, a, b: d.Print((a, b), "v"), x, y) == [
        "pid (0, 0, 0) idx () v: (operand 0) 1.500000",
        "pid (0, 0, 0) idx () v: (operand 1) -1",
    ]
    apply.printed.clear()
    assert printed(apply, lambda build, b: d.Print((b,), "h", True), y) == ["pid (0, 0, 0) idx () h: 0xffff"]
    apply.printed.clear()
    wide = np.zeros((16, 2), np.int32)
    lines = printed(apply, lambda build, v: d.Print((v,), ""), wide)
    assert lines[:3] == [f"pid (0, 0, 0) idx ( {i}, {j}): 0" for i, j in ((0, 0), (0, 1), (1, 0))]
    assert lines[-1] == "pid (0, 0, 0) idx (15, 1): 0"
    apply.printed.clear()
    assert printed(apply, lambda build: d.Print((), "here")) == ["pid (0, 0, 0) here"]


@pytest.mark.parametrize(
    ("kind", "text"), [("assert", "device-side assertion failed: x is small"), ("assume", "tl.assume")]
)
def test_false_conditions_name_place_program_and_index(kind, text):
    attributes = ' {message = "x is small"}' if kind == "assert" else ""
    function = parse_function(f"func @f(%c: i1) {{\n  {kind} %c{attributes}\n}}")
    function.body.ops[0].location = Location("kernel.py", 12, 2)
    run(function, (1,), [True])
    with pytest.raises(KernelAssertionError) as caught:
        run(function, (2,), [False])
    assert f"kernel.py:12:3: {text}" in str(caught.value)
    assert "program (0, 0, 0), tile index ()" in str(caught.value)


def test_first_failing_index_of_a_tile(apply):
    def make(build, x):
        build.emit(d.Assert(x, "all"))
        return x

    with pytest.raises(KernelAssertionError, match=r"tile index \(1, 0\)"):
        apply(make, np.array([[True, True], [False, True]]))


def test_terminators_and_assembly_have_a_reason_instead_of_a_rule():
    assert evaluates.reasons.keys() == {c.Yield, c.Condition, InlineAssembly, EffectfulAssembly}


def test_every_operation_is_tested_here():
    tested = {c.Yield, c.Condition, c.For, c.While, c.If, d.Print, d.Assert, d.Assume}
    assert tested == {op for op in REGISTRY.values() if op.__module__ in (c.__name__, d.__name__)}


# Evaluation while building -----------------------------------------------------------------------------------


def eager(memory: Memory, pid: int = 0) -> EagerBuilder:
    return EagerBuilder(memory, (pid, 0, 0), (4, 1, 1))


def test_eager_kernel_is_plain_python():
    """The body is Python: its if and for look at values, as pdb would."""
    x, out, memory = np.arange(32, dtype=np.float32), np.zeros(32, np.float32), Memory()
    for pid in range(4):
        build = eager(memory, pid)
        pointer = Tile(Pointer(F32))
        source, target = build.argument("x", pointer, x), build.argument("out", pointer, out)
        start = build.emit(p.ProgramId(0)).result
        assert build.item(start) == pid
        if build.item(start) == 2:
            continue
        block = build.emit(e.Constant(8, Tile(I32))).result
        first = build.emit(e.Mul(start, block)).result
        index = build.emit(e.Add(build.emit(s.Splat(first, (8,))).result, build.emit(s.Arange(0, 8)).result)).result
        assert build.array(index).tolist() == list(range(8 * pid, 8 * pid + 8))
        places = [build.emit(e.AddPtr(build.emit(s.Splat(v, (8,))).result, index)).result for v in (source, target)]
        value = build.emit(m.Load(places[0])).result
        for _ in range(pid):
            value = build.emit(e.Add(value, value)).result
        build.emit(m.Store(places[1], value))
    expected = x.reshape(4, 8) * np.array([[1], [2], [0], [8]])
    np.testing.assert_array_equal(out.reshape(4, 8), expected)
    assert len(memory.buffers) == 2


def test_eager_reduction_records_its_region():
    build = eager(Memory())
    tile, block = build.emit(s.Arange(0, 8)).result, Block()
    a, b = (block.add_argument(Tile(I32)) for _ in range(2))
    with build.into(block):
        build.emit(c.Yield((build.emit(e.Add(a, b)).result,)))
    assert build.item(build.emit(r.Reduce((tile,), 0, block)).result) == 28


def test_eager_errors_carry_the_location():
    build = eager(Memory())
    base = build.argument("x", Tile(Pointer(F32)), np.zeros(4, np.float32))
    build.location = Location("kernel.py", 3, 0)
    far = build.emit(e.AddPtr(base, build.emit(e.Constant(4, Tile(I32))).result)).result
    with pytest.raises(MemoryAccessError, match="load at kernel.py:3:1 .* element 4 of x"):
        build.emit(m.Load(far))
