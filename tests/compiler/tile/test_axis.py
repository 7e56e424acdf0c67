"""Axis facts: exact expectations for the idioms of real kernels, and every claim checked on random functions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deuteron.compiler.ir import Block, Builder, Function, Pointer, Tile, Value, parse_function
from deuteron.compiler.ir.types import F16, I8, I32, I64, U8, U32, U64
from deuteron.compiler.targets.interpreter import Memory, Program
from deuteron.compiler.targets.interpreter.launch import bind
from deuteron.compiler.tile import control as c
from deuteron.compiler.tile import debug
from deuteron.compiler.tile import elementwise as e
from deuteron.compiler.tile import movement as m
from deuteron.compiler.tile import program as p
from deuteron.compiler.tile import shape as s
from deuteron.compiler.tile.axis import LARGEST, AxisFacts, AxisInfo, analyze


class OutsideAssumptions(Exception):
    """The run left what the analysis assumes: signed overflow, or a division by zero."""


class Witness(Program):
    """Checks the facts of every value at every evaluation."""

    facts: AxisFacts

    def evaluate(self, op):
        if isinstance(op, e.IntDiv | e.Rem) and op.lhs.type.is_integer and (self.get(op.rhs) == 0).any():
            raise OutsideAssumptions
        super().evaluate(op)
        if _overflowed(op, self):
            raise OutsideAssumptions
        for value in op.results:
            self.check(value)

    def block(self, block, arguments=()):
        self.held.update(zip(block.args, arguments, strict=True))
        if block.args and block.args[0] in self.facts.known:  # combining regions are not analysed
            for value in block.args:
                self.check(value)
        return super().block(block, arguments)

    def check(self, value: Value) -> None:
        if value.type.is_float or not value.type.rank and value not in self.facts.known:
            return
        problem = broken_claim(self.facts[value], value.type, self.get(value))
        assert problem is None, f"{value!r} of {value.owner!r}: {problem} {self.get(value)}"


def _overflowed(op, program: Program) -> bool:
    arithmetic = {e.Add: np.add, e.Sub: np.subtract, e.Mul: np.multiply, e.Shl: np.left_shift}
    if not op.results or not op.results[0].type.is_integer:
        return False
    scalar = op.results[0].type.scalar
    if not scalar.is_signed or scalar.bits < 32 or type(op) not in (*arithmetic, e.Neg, e.Abs):
        return False
    operands = [program.get(v).astype(object) for v in op.operands]
    if type(op) in arithmetic:
        exact = arithmetic[type(op)](*operands)
    else:
        exact = -operands[0]
    low = -(1 << scalar.bits - 1)
    exact = np.asarray(exact, object).reshape(-1)
    return any(not low <= int(x) < -low for x in exact)


def broken_claim(info: AxisInfo, type: Tile, array: np.ndarray) -> str | None:
    """The first claim of ``info`` that ``array`` contradicts."""
    bits = 64 if type.is_pointer else type.scalar.bits
    values = array.astype(object).reshape(type.shape or (1,))
    if info.constant is not None and not (values == info.constant).all():
        return f"constant {info.constant}"
    if info.nonnegative and (values < 0).any():
        return "nonnegative"
    for d, n in enumerate(type.shape or (1,)):
        rows = np.moveaxis(values, d, -1)
        contiguity, constancy = info.contiguity[d], info.constancy[d]
        if contiguity > n or constancy > n:
            return f"group larger than dimension {d}"
        groups = rows.reshape(*rows.shape[:-1], n // contiguity, contiguity)
        steps = np.arange(contiguity) * info.unit
        if ((groups - groups[..., :1] - steps) % (1 << bits) != 0).any():
            return f"contiguity {info.contiguity}"
        if (groups[..., 0] % info.divisibility[d] != 0).any():
            return f"divisibility {info.divisibility}"
        groups = rows.reshape(*rows.shape[:-1], n // constancy, constancy)
        if (groups != groups[..., :1]).any():
            return f"constancy {info.constancy}"
    return None


@settings(max_examples=100)
@given(data=st.data())
def test_claims_hold(data, functions):
    watch(*data.draw(functions(floats=False, effects=False, steps=25)))


def watch(function: Function, arguments: list[object]) -> None:
    """Run the first two programs and compare every value with what is claimed about it."""
    facts = analyze(function)
    memory = Memory()
    held = [bind(q, a, memory) for q, a in zip(function.parameters, arguments, strict=True)]
    for pid in range(2):
        witness = Witness(memory, (pid, 0, 0), (2, 1, 1))
        witness.facts = facts
        try:
            witness.block(function.body, held)
        except OutsideAssumptions:
            return


@pytest.mark.parametrize("distance", range(1, 16))
def test_runs_that_change_places(distance):
    k = Kernel()
    x = k.emit(s.Arange(32, 48))
    rows = k.emit(s.Broadcast(k.emit(s.ExpandDims(x, 1)), (16, 4)))
    moved, turned = k.emit(m.Butterfly(x, 0, distance)), k.emit(m.Butterfly(rows, 1, 1 + distance % 3))
    facts = analyze(k.function)
    lowest = distance & -distance
    assert (facts[moved].contiguity, facts[moved].divisibility) == ((lowest,), (lowest,))
    assert facts[turned].constancy == (1, 4)
    watch(k.function, [])


@st.composite
def index_chains(draw) -> tuple[Function, list[object]]:
    """Arithmetic as kernels do it on indices: a range, changed step by step by constants and parameters."""
    k, parameter = Kernel(), draw(st.sampled_from([1, 2, 4, 8, 12, 16]))
    n = k.param("n", parameter & -parameter)
    shape = draw(st.sampled_from([(16,), (2, 8), (8, 2)]))

    def numbers(like: Value) -> Value:
        if like.type == Tile(I32, shape) and draw(st.integers(0, 3)) == 0:
            return k.splat(n, *shape)
        return k.emit(e.Constant(draw(st.sampled_from([0, 1, 2, 3, 4, 8, 16, 7, -8, -4])), like.type))

    start = draw(st.sampled_from([0, 0, 16, 4, 120, -8, -16, -4]))
    x = k.emit(s.Reshape(k.emit(s.Arange(start, start + 16)), shape))
    seen = [x]
    for _ in range(draw(st.integers(1, 4))):
        x = draw(st.sampled_from(seen[-3:]))
        kind = draw(st.sampled_from([e.Add, e.Sub, e.Mul, e.IntDiv, e.Rem, e.And, e.Or, e.Shl, e.Shr,
                                     e.Min, e.Max, e.Cast, e.Compare, e.Select, m.Butterfly]))  # fmt: skip
        if kind is m.Butterfly:
            axis = draw(st.integers(0, len(shape) - 1))
            x = k.emit(m.Butterfly(x, axis, draw(st.integers(1, shape[axis] - 1))))
        elif kind is e.Cast:
            x = k.emit(e.Cast(x, draw(st.sampled_from([I8, I32, I64, U8, U32, U64]))))
        elif kind is e.Compare:
            k.emit(e.Compare(x, numbers(x), draw(st.sampled_from(["lt", "le", "gt", "ge", "eq"]))))
            k.emit(e.Compare(numbers(x), x, draw(st.sampled_from(["lt", "le", "gt", "ge", "ne"]))))
            continue
        elif kind is e.Select:
            other = k.emit(e.Add(x, numbers(x)))
            x = k.emit(e.Select(k.emit(e.Compare(x, numbers(x), "lt")), x, other))
        elif kind in (e.Shl, e.Shr):
            x = k.emit(kind(x, k.emit(e.Constant(draw(st.integers(0, 4)), x.type))))
        else:
            others = [numbers(x), *(v for v in seen if v.type == x.type)]
            x = k.emit(kind(x, draw(st.sampled_from([others[0], *others]))))
        seen.append(x)
    return k.function, [parameter]


@settings(max_examples=1000)
@given(sketch=index_chains())
def test_claims_about_indices_hold(sketch):
    watch(*sketch)


class Kernel:
    """Builds the index arithmetic of a kernel and asks for facts."""

    def __init__(self) -> None:
        self.function = Function("f")
        self.build = Builder(self.function.body)
        self.pid = self.emit(p.ProgramId(0))

    def emit(self, op):
        return self.build.emit(op).result

    def number(self, value: int, *shape: int) -> Value:
        return self.emit(e.Constant(value, Tile(I32, shape)))

    def param(self, name: str, divisibility: int = 1, type: Tile = Tile(I32)) -> Value:  # noqa: B008
        return self.function.add_parameter(name, type, divisibility)

    def splat(self, x: Value, *shape: int) -> Value:
        return self.emit(s.Splat(x, shape))

    def offsets(self, block: int) -> Value:
        start = self.emit(e.Mul(self.pid, self.number(block)))
        return self.emit(e.Add(self.splat(start, block), self.emit(s.Arange(0, block))))

    def facts(self, value: Value) -> AxisInfo:
        return analyze(self.function)[value]


@pytest.fixture
def k() -> Kernel:
    return Kernel()


def test_block_offsets(k):
    info = k.facts(k.offsets(1024))
    assert (info.contiguity, info.divisibility, info.constancy) == ((1024,), (1024,), (1,))
    assert info.nonnegative


@pytest.mark.parametrize(
    ("axis", "first", "second", "known"),
    [(0, 1, "pid", True), (0, "pid", 1, True), (1, 1, "pid", False), (0, 2, "pid", False), (0, "pid", "pid", False)],
)
def test_programs_counted_from_the_last_one(k, axis, first, second, known):
    """``num_programs - 1 - program_id`` is never negative; with another number or axis it may be."""
    taken = [k.pid if term == "pid" else k.number(term) for term in (first, second)]
    left = k.emit(e.Sub(k.emit(e.Sub(k.emit(p.NumPrograms(axis)), taken[0])), taken[1]))
    assert k.facts(left).nonnegative == known


def test_mask_of_divisible_bound_is_constant_in_groups(k):
    mask = k.emit(e.Compare(k.offsets(64), k.splat(k.param("n", 16), 64), "lt"))
    assert k.facts(mask).constancy == (16,)


def test_mask_of_any_bound_is_not(k):
    bound = k.splat(k.param("n"), 64)
    assert k.facts(k.emit(e.Compare(k.offsets(64), bound, "lt"))).constancy == (1,)
    even = k.splat(k.param("m", 16), 64)
    assert k.facts(k.emit(e.Compare(k.offsets(64), even, "le"))).constancy == (1,)
    assert k.facts(k.emit(e.Compare(even, k.offsets(64), "gt"))).constancy == (16,)


def test_pointers_count_bytes(k):
    base = k.splat(k.param("x", 16, Tile(Pointer(F16))), 64)
    info = k.facts(k.emit(e.AddPtr(base, k.offsets(64))))
    assert (info.contiguity, info.divisibility, info.unit) == ((64,), (16,), 2)
    assert info.aligned(0) == 8


def test_row_major_tile(k):
    stride = k.splat(k.param("stride", 16), 8, 1)
    rows = k.emit(e.Mul(k.emit(s.ExpandDims(k.offsets(8), 1)), stride))
    columns = k.emit(s.ExpandDims(k.emit(s.Arange(0, 32)), 0))
    tile = k.emit(e.Add(*(k.emit(s.Broadcast(x, (8, 32))) for x in (rows, columns))))
    info = k.facts(tile)
    assert (info.contiguity, info.divisibility) == ((1, 32), (1, 16))
    transposed = k.facts(k.emit(s.Permute(tile, (1, 0))))
    assert (transposed.contiguity, transposed.divisibility) == ((32, 1), (16, 1))


def test_wrapped_offsets_stay_contiguous_in_groups_of_the_divisor(k):
    info = k.facts(k.emit(e.Rem(k.offsets(64), k.splat(k.param("m", 16), 64))))
    assert (info.contiguity, info.divisibility) == ((16,), (16,))


@pytest.mark.parametrize(
    ("predicate", "least", "inside", "known"),
    [("ge", 0, False, 16), ("gt", 0, False, 16), ("ge", -1, False, 1), ("le", 0, False, 1), ("ge", 0, True, 1)],
)
def test_wrapped_offsets_of_what_is_assumed_not_to_be_negative(k, predicate, least, inside, known):
    """Columns of a grouped order of tiles, of which nobody knows that they are none below zero; what only one side of
    a branch assumes holds there alone."""
    column = k.emit(e.IntDiv(k.pid, k.param("group")))
    said = k.emit(e.Compare(column, k.number(least), predicate))
    if inside:
        then, otherwise = Block(), Block()
        Builder(then).emit(debug.Assume(said))
        for side in (then, otherwise):
            Builder(side).emit(c.Yield(()))
        k.build.emit(c.If(k.emit(e.Compare(k.pid, k.number(5), "lt")), then, otherwise))
    else:
        k.build.emit(debug.Assume(said))
    start = k.splat(k.emit(e.Mul(column, k.number(64))), 64)
    offsets = k.emit(e.Add(start, k.emit(s.Arange(0, 64))))
    assert k.facts(k.emit(e.Rem(offsets, k.splat(k.param("n", 16), 64)))).contiguity == (known,)


def test_dividends_that_may_be_negative_promise_nothing(k):
    shifted = k.emit(e.Sub(k.emit(s.Arange(0, 64)), k.number(4, 64)))
    assert k.facts(k.emit(e.Rem(shifted, k.number(4, 64)))).contiguity == (1,)
    assert k.facts(k.emit(e.IntDiv(shifted, k.number(4, 64)))).constancy == (1,)
    assert k.facts(k.emit(e.Shr(shifted, k.number(2, 64)))).constancy == (4,)


def test_what_is_subtracted_runs_backwards(k):
    """Only the left side's run goes up, as far as the right side is constant."""
    up, level = k.emit(s.Arange(0, 64)), k.number(64, 64)
    assert k.facts(k.emit(e.Sub(level, up))).contiguity == (1,)
    assert k.facts(k.emit(e.Sub(up, level))).contiguity == (64,)
    assert k.facts(k.emit(e.Sub(up, k.emit(e.IntDiv(up, k.number(8, 64)))))).contiguity == (8,)
    assert not k.facts(k.emit(e.Sub(up, level))).nonnegative


def test_quotients_are_constant_in_groups(k):
    assert k.facts(k.emit(e.IntDiv(k.emit(s.Arange(0, 64)), k.number(8, 64)))).constancy == (8,)


def test_constants(k):
    info = k.facts(k.number(24, 4, 8))
    assert info == AxisInfo((1, 1), (8, 8), (4, 8), 24, True)
    assert k.facts(k.number(0)).divisibility == (LARGEST,)


def test_promises_of_the_author(k):
    index = k.emit(e.Rem(k.offsets(64), k.splat(k.param("m"), 64)))
    promised = k.emit(e.Hint(index, divisibility=(64,), contiguity=(64,)))
    info = k.facts(promised)
    assert (info.contiguity, info.divisibility) == ((64,), (64,))


LOOP = """
func @f(%p: *f16 {divisibility = 16}, %n: i32, %s: i32 {divisibility = STEP}) {
  %z = constant {value = 0, type = i32} : i32
  %b = constant {value = 64, type = i32} : i32
  %r = arange {start = 0, end = 64} : tile<64xi32>
  %ps = splat %p {shape = [64]} : tile<64x*f16>
  %q0 = addptr %ps %r : tile<64x*f16>
  %out = for %z %n %b inits=[%q0] {num_stages = 0, unroll = 1} : tile<64x*f16> body=(%i: i32, %q: tile<64x*f16>) {
    %step = splat %s {shape = [64]} : tile<64xi32>
    %next = addptr %q %step : tile<64x*f16>
    yield values=[%next]
  }
}
"""


@pytest.mark.parametrize(("step", "divisibility"), [(16, 16), (4, 8), (1, 2)])
def test_loop_carried_pointers(step, divisibility):
    function = parse_function(LOOP.replace("STEP", str(step)))
    facts = analyze(function)
    loop = function.body.ops[-1]
    for value in (loop.results[0], loop.body.args[1]):
        assert facts[value].contiguity == (64,)
        assert facts[value].divisibility == (divisibility,)
    assert facts[loop.body.args[0]].divisibility == (64,)


BRANCHES = """
func @f(%c: i1) {
  %r = arange {start = 0, end = 64} : tile<64xi32>
  %n = constant {value = 4, type = tile<64xi32>} : tile<64xi32>
  %g = rem %r %n : tile<64xi32>
  %q = int_div %r %n : tile<64xi32>
  %out %turned %level = if %c : tile<64xi32>, tile<64xi32>, tile<64xi32> then=() {
    yield values=[%r, %g, %n]
  } otherwise=() {
    yield values=[%g, %r, %q]
  }
}
"""


def test_of_two_branches_what_holds_of_both():
    function = parse_function(BRANCHES)
    facts = analyze(function)
    out, turned, level = (facts[value] for value in function.body.ops[-1].results)
    assert out == turned and (out.contiguity, out.divisibility, out.constancy) == ((4,), (4,), (1,))
    assert (level.constancy, level.contiguity, level.constant) == ((4,), (1,), None)


def test_unanalysed_values_know_nothing():
    assert AxisFacts()[Value(Tile(I32, (4,)))] == AxisInfo((1,), (1,), (1,))


def test_the_witness_can_catch_a_lie():
    lie = AxisInfo((4,), (4,), (1,))
    assert broken_claim(lie, Tile(I32, (4,)), np.array([4, 5, 6, 8])) == "contiguity (4,)"
    assert broken_claim(lie, Tile(I32, (4,)), np.array([2, 3, 4, 5])) == "divisibility (4,)"
    assert broken_claim(lie, Tile(I32, (4,)), np.array([8, 9, 10, 11])) is None


STEPS = """
func @f(%p: *f16, %n: i32, %w: i32) {
  %z = constant {value = 0, type = i32} : i32
  %r = arange {start = 0, end = 64} : tile<64xi32>
  %c = arange {start = 0, end = 8} : tile<8xi32>
  %ws = splat %w {shape = [64]} : tile<64xi32>
  %two = constant {value = 2, type = tile<64xi32>} : tile<64xi32>
  %row = int_div %r %ws : tile<64xi32>
  %column = rem %r %ws : tile<64xi32>
  %far = mul %row %ws : tile<64xi32>
  %near = mul %column %two : tile<64xi32>
  %pixel = add %far %near : tile<64xi32>
  %pixels = expand_dims %pixel {axis = 1} : tile<64x1xi32>
  %all = broadcast %pixels {shape = [64, 8]} : tile<64x8xi32>
  %nine = constant {value = 9, type = tile<8xi32>} : tile<8xi32>
  %tap = mul %nine %c : tile<8xi32>
  %taps = expand_dims %tap {axis = 0} : tile<1x8xi32>
  %every = broadcast %taps {shape = [64, 8]} : tile<64x8xi32>
  %both = add %all %every : tile<64x8xi32>
  %turned = permute %both {order = [1, 0]} : tile<8x64xi32>
  %back = sub %every %both : tile<64x8xi32>
  %square = mul %both %both : tile<64x8xi32>
  %ps = splat %p {shape = [64, 8]} : tile<64x8x*f16>
  %q0 = addptr %ps %both : tile<64x8x*f16>
  %out = for %z %n %n inits=[%q0] {num_stages = 0, unroll = 1} : tile<64x8x*f16> body=(%i: i32, %q: tile<64x8x*f16>) {
    %next = addptr %q %all : tile<64x8x*f16>
    yield values=[%next]
  }
}
"""


def test_how_far_apart_neighbours_mostly_are():
    function = parse_function(STEPS)
    facts = analyze(function)
    steps = {value.name: facts.steps[value] for op in function.walk() for value in op.results if value.type.rank}
    assert steps["row"] == steps["far"] == (0,) and steps["column"] == (1,) and steps["near"] == steps["pixel"] == (2,)
    assert steps["all"] == (2, 0) and steps["every"] == (0, 9) and steps["both"] == steps["q0"] == (2, 9)
    assert steps["turned"] == (9, 2) and steps["back"] == (-2, 0) and steps["square"] == (None, None)
    (loop,) = [op for op in function.body.ops if op.mnemonic == "for"]
    assert facts.steps[loop.body.args[1]] == (2, 9) and steps["next"] == (4, 9)


@pytest.mark.parametrize(("shift", "up", "down"), [(0, 1, 1), (3, 8, 0), (31, 2**31, 0), (32, None, 0), (-1, None, 0)])
def test_shifts_that_have_no_result_say_nothing(shift, up, down):
    """And compiling goes on, however far they are said to go."""
    text = """
func @f() {
  %r = arange {start = 0, end = 64} : tile<64xi32>
  %s = constant {value = SHIFT, type = tile<64xi32>} : tile<64xi32>
  %up = shl %r %s : tile<64xi32>
  %down = shr %r %s : tile<64xi32>
}
"""
    function = parse_function(text.replace("SHIFT", str(shift)))
    facts = analyze(function)
    assert [facts.steps[op.results[0]] for op in function.body.ops[-2:]] == [(up,), (down,)]
