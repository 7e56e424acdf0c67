"""Where operations are, and what values are made of."""

from __future__ import annotations

import pytest

from deuteron.compiler.ir import parse_function
from deuteron.compiler.ir.slices import backward_slice
from deuteron.compiler.tile import control as c
from deuteron.compiler.tile import elementwise as e

BRANCH = """func @f(%x: i32, %c: i1) {
  %a = neg %x : i32
  %b = abs %x : i32
  %y = if %c : i32 then=() {
    %d = neg %a : i32
    yield values=[%d]
  } otherwise=() {
    yield values=[%x]
  }
  %z = neg %y : i32
  %u = neg %b : i32
}"""


def test_a_slice_has_what_regions_read_and_no_more():
    function = parse_function(BRANCH)
    a, b, branch, z, u = function.body.ops
    assert backward_slice([z.result], function.body.ops) == {a, branch, z}
    assert backward_slice([z.result, b.result], [b, branch]) == {b}  # what leads on is not among them
    assert backward_slice([], function.body.ops) == set()
    assert backward_slice([u.result], function.body.ops) == {b, u}


def test_operations_are_found_by_kind_and_place():
    function = parse_function(BRANCH)
    a, _, branch, z, u = function.body.ops
    assert isinstance(branch, c.If)
    inner = branch.then.ops[0]
    assert function.ops_of(e.Neg) == [a, inner, z, u]
    assert branch.then.ops_of(e.Neg) == [inner]
    assert list(branch.walk()) == [branch, inner, branch.then.ops[1], branch.otherwise.ops[0]]
    assert function.body.holder_of(inner) is branch.then
    assert function.body.holder_of(z) is function.body
    with pytest.raises(ValueError, match="is not in the block"):
        branch.otherwise.holder_of(inner)
