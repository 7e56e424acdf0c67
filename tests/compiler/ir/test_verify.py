"""The verifier finds what construction cannot: dominance, stale types, misplaced terminators."""

import pytest

from deuteron.compiler.errors import IRError, TypeMismatch
from deuteron.compiler.ir import Block, Builder, Function, Tile, parse_function, verify
from deuteron.compiler.ir.types import F32, I1, I32
from deuteron.compiler.tile import control as c
from deuteron.compiler.tile import elementwise as e


def two_negations() -> tuple[Function, e.Neg, e.Neg]:
    function = Function("f")
    build = Builder(function.body)
    first = build.emit(e.Neg(function.add_parameter("x", Tile(I32))))
    return function, first, build.emit(e.Neg(first.result))


def test_use_before_definition():
    function, first, second = two_negations()
    function.body.ops = [second, first]
    with pytest.raises(IRError, match="before it is defined"):
        verify(function)


def test_value_of_a_region_does_not_leave_it():
    function = parse_function(
        "func @f(%c: i1) {\n  if %c then=() {\n    %x = constant {value = 1, type = i32} : i32\n"
        "  } otherwise=() {\n  }\n}"
    )
    inside = function.body.ops[0].then.ops[0]
    Builder(function.body).emit(e.Neg(inside.result))
    with pytest.raises(IRError, match="before it is defined"):
        verify(function)


def test_result_type_no_longer_follows():
    function, first, _ = two_negations()
    first.result.type = Tile(F32)
    with pytest.raises(IRError, match="its operands give"):
        verify(function)


def test_terminator_in_the_middle():
    function, _, _ = two_negations()
    function.body.ops.insert(0, c.Yield(()))
    with pytest.raises(IRError, match="must be the last operation"):
        verify(function)


def test_loop_must_yield_what_it_carries():
    body, bound = Block(), Function("f").add_parameter("n", Tile(I32))
    body.add_argument(Tile(I32))
    body.add_argument(Tile(I32))
    with pytest.raises(TypeMismatch, match="must yield the carried types"):
        c.For(bound, bound, bound, (bound,), 0, 1, body)


def test_branches_must_agree():
    condition = Function("f").add_parameter("c", Tile(I1))
    then = Block(ops=[c.Yield((condition,))])
    with pytest.raises(TypeMismatch, match="both branches"):
        c.If(condition, then, Block(ops=[c.Yield(())]))
