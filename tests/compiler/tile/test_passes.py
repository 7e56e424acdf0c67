"""Passes keep what a function computes, are idempotent, keep source locations, and stay fast."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deuteron.compiler.errors import Location
from deuteron.compiler.ir import Block, Function, Op, parse_function, print_function, verify
from deuteron.compiler.tile.passes import (
    PIPELINE,
    cse,
    dce,
    expand_blocks,
    licm,
    linearize_induction,
    optimize,
    unroll,
)

#: All of the pipeline, the pipeline, and what later stages ask for.
PASSES = {step.__name__: step for step in (*dict(PIPELINE).values(), optimize, linearize_induction, expand_blocks)}


def copy(function: Function) -> Function:
    made, env = Function(function.name), {}
    for parameter in function.parameters:
        env[parameter.value] = made.add_parameter(parameter.name, parameter.value.type, parameter.divisibility)
    made.body.ops = [op.clone(env) for op in function.body.ops]
    return made


def assert_same(got: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """Equal bit for bit, except that all NaNs are one."""
    for a, b in zip(got, expected, strict=True):
        if a.dtype.kind not in "iub":
            a, b = a.astype(np.float64), b.astype(np.float64)
            np.testing.assert_array_equal(np.signbit(a[a == a]), np.signbit(b[b == b]))
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", PASSES)
@given(data=st.data())
def test_meaning_is_kept(name, data, functions, run_copy):
    function, arguments = data.draw(functions(blocks=True))
    expected = run_copy(function, arguments)
    changed = verify(PASSES[name](copy(function)))
    assert_same(run_copy(changed, arguments), expected)


@pytest.mark.parametrize("name", PASSES)
@given(data=st.data())
def test_idempotent(name, data, functions):
    """The pipeline but for promises: what is said of one of two equal values is said of both once they are one."""
    function, _ = data.draw(functions(blocks=True, promises=name != "optimize"))
    once = print_function(PASSES[name](function))
    assert print_function(PASSES[name](function)) == once


@given(data=st.data())
def test_every_step_of_the_pipeline_verifies(data, functions):
    function, _ = data.draw(functions(blocks=True))
    for _, step in PIPELINE:
        verify(step(function))


@pytest.mark.parametrize("name", PASSES)
@given(data=st.data())
def test_locations_are_kept(name, data, functions):
    function, _ = data.draw(functions(blocks=True))
    for line, op in enumerate(function.walk(), 1):
        op.location = Location("kernel.py", line, 0)
    PASSES[name](function)
    assert all(op.location is not None for op in _outside_combining(function.body))


def _outside_combining(block: Block) -> list[Op]:
    found = []
    for op in block.ops:
        found.append(op)
        for nested in op.blocks:
            found += _outside_combining(nested)
    return found


def parse(body: str, head: str = "%p: *i32, %x: i32, %c: i1") -> Function:
    return verify(parse_function(f"func @f({head}) {{\n{body}\n}}"))


def mnemonics(function: Function) -> list[str]:
    return [op.mnemonic for op in function.walk()]


def test_dce_drops_one_of_two_carried_values():
    function = parse("""
  %a = constant {value = 0, type = i32} : i32
  %b = constant {value = 9, type = i32} : i32
  %s = constant {value = 1, type = i32} : i32
  %u, %v = for %a %b %s inits=[%a, %b] {num_stages = 0, unroll = 1} : i32, i32 body=(%i: i32, %q: i32, %r: i32) {
    %m = add %q %i : i32
    %n = mul %r %q : i32
    yield values=[%m, %n]
  }
  store %p %u {cache = "", eviction = ""}""")
    (loop,) = (op for op in verify(dce(function)).body.ops if op.mnemonic == "for")
    assert len(loop.results) == len(loop.inits) == 1
    assert [op.mnemonic for op in loop.body.ops] == ["add", "yield"]
    assert [v.index for v in loop.body.args] == [0, 1]


def test_dce_drops_unused_loads_and_empty_branches():
    function = parse("""
  %u = load %p {cache = "", eviction = "", volatile = False} : i32
  %r = if %c : i32 then=() {
    %a = neg %u : i32
    yield values=[%a]
  } otherwise=() {
    yield values=[%u]
  }""")
    assert mnemonics(dce(function)) == []


def test_dce_keeps_stores_in_nested_regions_and_what_decides_them():
    function = parse("""
  %n = neg %x : i32
  %d = compare %n %x {predicate = "lt"} : i1
  if %d then=() {
    if %c then=() {
      store %p %x {cache = "", eviction = ""}
    } otherwise=() {
    }
  } otherwise=() {
  }""")
    before = mnemonics(function)
    assert mnemonics(dce(function)) == before


@pytest.mark.parametrize("division", ["int_div", "rem"])
def test_licm_leaves_nested_loops_at_once_also_with_divisions(division: str):
    """Which trap on no target: of x / 0 all bits are set."""
    function = parse(f"""
  %a = constant {{value = 0, type = i32}} : i32
  %s = constant {{value = 1, type = i32}} : i32
  for %a %x %s inits=[] {{num_stages = 0, unroll = 1}} body=(%i: i32) {{
    for %a %x %s inits=[] {{num_stages = 0, unroll = 1}} body=(%j: i32) {{
      %m = mul %x %x : i32
      %q = {division} %m %x : i32
      %k = add %m %i : i32
      %t = add %k %q : i32
      store %p %t {{cache = "", eviction = ""}}
    }}
  }}""")
    top = verify(licm(function)).body.ops
    assert [op.mnemonic for op in top] == ["constant", "constant", "mul", division, "for"]
    assert [op.mnemonic for op in top[-1].body.ops] == ["add", "add", "for"]
    assert [op.mnemonic for op in top[-1].body.ops[-1].body.ops] == ["store"]


def test_cse_is_scoped_and_tells_signed_zeros_apart():
    function = parse("""
  if %c then=() {
    %u = neg %x : i32
    store %p %u {cache = "", eviction = ""}
  } otherwise=() {
    %v = neg %x : i32
    store %p %v {cache = "", eviction = ""}
  }
  %w = neg %x : i32
  store %p %w {cache = "", eviction = ""}
  %y = neg %x : i32
  store %p %y {cache = "", eviction = ""}
  %z0 = constant {value = 0.0, type = f32} : f32
  %z1 = constant {value = -0.0, type = f32} : f32
  print values=[%z0, %z1] {prefix = "", hex = False}""")
    names = mnemonics(verify(cse(function)))
    assert names.count("neg") == 3
    assert names.count("constant") == 2


def test_cse_merges_equal_reductions():
    reduction = """
  %{0} = reduce inputs=[%t] {{axis = 0}} : i32 combine=(%a{0}: i32, %b{0}: i32) {{
    %s{0} = {1} %a{0} %b{0} : i32
    yield values=[%s{0}]
  }}
  store %p %{0} {{cache = "", eviction = ""}}"""
    body = "  %t = arange {start = 0, end = 8} : tile<8xi32>"
    for name, combine in (("u", "add"), ("v", "add"), ("w", "max")):
        body += reduction.format(name, combine)
    assert mnemonics(verify(cse(parse(body)))).count("reduce") == 2


@pytest.mark.parametrize(("upper", "factor", "loops", "bodies"), [(4, 4, 0, 4), (3, 8, 0, 3), (9, 4, 2, 5)])
def test_unroll(upper, factor, loops, bodies):
    function = parse(f"""
  %a = constant {{value = 0, type = i32}} : i32
  %b = constant {{value = {upper}, type = i32}} : i32
  %s = constant {{value = 1, type = i32}} : i32
  for %a %b %s inits=[] {{num_stages = 0, unroll = {factor}}} body=(%i: i32) {{
    store %p %i {{cache = "", eviction = ""}}
  }}""")
    names = mnemonics(verify(unroll(function)))
    assert names.count("for") == loops
    assert names.count("store") == bodies


def test_pipeline_takes_microseconds_per_operation():
    body = "\n".join(
        f'  %a{i} = add %x %x : i32\n  %b{i} = mul %a{i} %x : i32\n  store %p %b{i} {{cache = "", eviction = ""}}'
        for i in range(300)
    )
    function = parse(body)
    start = time.perf_counter()
    optimize(function)
    # About 15 us on a quiet core of 2020; the bound only catches quadratic behaviour.
    assert (time.perf_counter() - start) / 900 < 200e-6
