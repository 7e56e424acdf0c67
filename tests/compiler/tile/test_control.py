"""What loops and branches say of the values that they hand on (tile/control.py)."""

from __future__ import annotations

from deuteron.compiler.ir import Function, parse_function, verify
from deuteron.compiler.ir.core import Op
from deuteron.compiler.tile import control as c
from deuteron.compiler.tile import elementwise as e

LOOP = """func @f(%n: i32, %x: f32) {
  %sum = for %n %n %n inits=[%x] {num_stages = 3, unroll = 2} : f32 body=(%i: i32, %a: f32) {
    %b = add %a %x : f32
    yield values=[%b]
  }
  %y = neg %sum : f32
}"""


def loop_of(text: str) -> tuple[Function, c.For, Op]:
    function = parse_function(text)
    loop, reader = function.body.ops[:2]
    assert isinstance(loop, c.For)
    return function, loop, reader


def test_a_loop_carries_more():
    function, loop, reader = loop_of(LOOP)
    n = function.parameters[0].value
    seen = loop.body.add_argument(n.type, "seen")
    more = e.Add(seen, n)
    loop.body.ops.insert(0, more)
    made = loop.carrying([n], [more.result])
    function.body.ops[0] = made
    function.replace_uses(dict(zip(loop.results, made.results, strict=False)))
    verify(function)
    assert reader.operands == [made.results[0]]
    assert (made.num_stages, made.unroll, made.inits) == (3, 2, (*loop.inits, n))
    assert c.handed_on(made.body)[1] is more.result


def test_uses_inside_are_replaced_too():
    function, loop, reader = loop_of(LOOP)
    x = function.parameters[1].value
    half = e.Neg(x)
    function.replace_uses({x: half.result})
    function.body.ops.insert(0, half)
    verify(function)
    assert loop.inits == (half.result,)
    assert loop.body.ops[0].operands[1] is half.result
    assert half.x is x
    assert reader.operands == [loop.result]


def test_what_is_handed_on_in_one_place():
    function = parse_function(
        """func @f(%n: i32, %x: f32, %c: i1) {
  %a = while inits=[%x] : f32 before=(%b: f32) {
    condition %c values=[%b]
  } body=(%d: f32) {
    %e = neg %d : f32
    yield values=[%e]
  }
  %g = if %c : f32 then=() {
    yield values=[%a]
  } otherwise=() {
    yield values=[%x]
  }
}"""
    )
    n, x, condition = (parameter.value for parameter in function.parameters)
    loop, branch = function.body.ops
    assert isinstance(loop, c.While)
    assert isinstance(branch, c.If)
    (begun,), (taken,), negated = loop.before.args, loop.body.args, loop.body.ops[0]
    assert loop.handed_together == [(loop.result, x, begun, taken, begun, negated.result)]
    assert (loop.carried, loop.leaving, loop.deciding) == ((begun,), (begun,), (condition,))
    assert branch.handed_together == [(branch.result, loop.result, x)]
    assert branch.deciding == (condition,)
    function, walk, _ = loop_of(LOOP)
    n, x = (parameter.value for parameter in function.parameters)
    (_, total), added = walk.body.args, walk.body.ops[0]
    assert walk.handed_together == [(walk.result, x, total, added.result)]
    assert walk.deciding == (n, n, n)
