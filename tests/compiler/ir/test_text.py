"""Printing and parsing are inverse to each other; broken text is refused with the place of the fault."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deuteron.compiler.errors import IRError
from deuteron.compiler.ir import parse_function, print_function, verify


@given(data=st.data())
def test_round_trip(data, functions):
    function, _ = data.draw(functions())
    text = print_function(function)
    again = verify(parse_function(text))
    assert print_function(again) == text


@pytest.mark.parametrize(
    ("attributes", "type"),
    [
        ("value = -0.0, type = f32", "f32"),
        ("value = inf, type = f64", "f64"),
        ("value = -inf, type = f64", "f64"),
        ("value = nan, type = bf16", "bf16"),
        ("value = 1e-05, type = f64", "f64"),
        ("value = 9.999999747378752e-06, type = f32", "f32"),
        ("value = -3, type = tile<4xi32>", "tile<4xi32>"),
        ("value = True, type = i1", "i1"),
        ("value = 0, type = **const f8e4m3", "**const f8e4m3"),
        ("value = 0, type = *const *u8", "*const *u8"),
        ("value = 0, type = tile<2x4x*f16>", "tile<2x4x*f16>"),
    ],
)
def test_literals_survive(attributes, type):
    text = f"func @f() {{\n  %0 = constant {{{attributes}}} : {type}\n}}\n"
    assert print_function(parse_function(text)) == text


def test_strings_and_divisibility_survive():
    text = (
        "func @f(%p: *f32 {divisibility = 16}, %c: i1) {\n"
        '  assert %c {message = "a \\"quoted\\" back\\\\slash\\nand a line"}\n'
        '  print values=[%c] {prefix = "x: ", hex = True}\n'
        "}\n"
    )
    assert print_function(parse_function(text)) == text


def test_names_are_made_unique():
    text = "func @f(%x: i32) {\n  %x = neg %x : i32\n  %y = neg %x : i32\n}\n"
    function = parse_function(text)
    inner, outer = function.body.ops
    assert inner.x is function.body.args[0]
    assert outer.x is inner.result
    again = parse_function(print_function(function))
    assert again.body.ops[1].x is again.body.ops[0].result


HEAD = "func @f(%x: i32, %p: *f32) {\n"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("  %0 = frobnicate %x : i32\n}", "line 2: expected an operation, got 'frobnicate'"),
        ("  %0 = neg %y : i32\n}", "line 2: expected a value that is defined before, got '%y'"),
        ("  %0 = neg %x : f32\n}", "neg with types i32 instead of f32"),
        ("  %0 = add %x %p : i32\n}", "line 2: add(i32, *f32): operands must have one type"),
        ("  %0, %1 = neg %x : i32\n}", "1 result names before neg"),
        ("  %0 = program_id {axis = 3} : i32\n}", "axis must be 0, 1 or 2"),
        ("  %0 = program_id {row = 0} : i32\n}", "expected an attribute of program_id, got 'row'"),
        ("  %0 = program_id {axis = } : i32\n}", "expected an attribute value"),
        ("  %0 = program_id : i32\n}", "expected all fields of program_id"),
        (
            "  %0 = arange {start = 0, end = 48} : tile<48xi32>\n}",
            "line 2: tile dimensions must be powers of two",
        ),
        ("  %0 = arange {start = 0, end = 48} : i32\n}", "line 2: arange(0, 48) has 48 elements"),
        (
            "  %0 = splat %x {shape = [3]} : tile<4xi32>\n}",
            "line 2: tile dimensions must be powers of two",
        ),
        ("  %0 = neg %x : q32\n}", "line 2: unknown element type 'q32'"),
        ("  %0 = neg %x : i32\n", "got 'end of text'"),
        ("  %0 = neg %x : i32\n} }", "expected the end, got '}'"),
        ("  %0 = neg ! %x : i32\n}", "line 2: cannot read '!"),
    ],
)
def test_parse_errors(body, message):
    with pytest.raises(IRError) as caught:
        verify(parse_function(HEAD + body))
    assert message in str(caught.value)
