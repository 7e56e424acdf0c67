"""Promotion against Triton's published rules, written down as a table."""

from __future__ import annotations

import pytest

from deuteron.compiler.errors import TypeMismatch
from deuteron.compiler.frontend import KernelSource, lower

TENSORS = [
    ("i1", "i32", "+", "i32"),
    ("i8", "i32", "+", "i32"),
    ("u8", "i32", "+", "i32"),
    ("u32", "i32", "+", "u32"),
    ("i64", "u32", "+", "i64"),
    ("f16", "i32", "+", "f16"),
    ("f16", "i32", "/", "f32"),
    ("f16", "f16", "*", "f16"),
    ("f16", "f16", "/", "f32"),
    ("bf16", "bf16", "+", "bf16"),
    ("bf16", "bf16", "*", "bf16"),
    ("bf16", "bf16", "/", "f32"),
    ("bf16", "f16", "/", "f32"),
    ("bf16", "i32", "/", "f32"),
    ("bf16", "f16", "+", "f16"),
    ("bf16", "i32", "+", "f32"),
    ("bf16", "f32", "*", "f32"),
    ("f32", "f64", "*", "f64"),
    ("i32", "i32", "/", "f32"),
    ("i32", "i32", "//", "i32"),
    ("f32", "f32", "/", "f32"),
    ("f64", "f16", "/", "f64"),
    ("f32", "i64", "+", "f32"),
    ("i16", "u16", "+", "u16"),
    ("i1", "f16", "+", "f16"),
]

NUMBERS = [
    ("f16", "2.0", "*", "f16"),
    ("f16", "2", "/", "f32"),
    ("bf16", "1", "+", "bf16"),
    ("bf16", "2", "/", "f32"),
    ("f64", "2", "/", "f64"),
    ("i64", "1", "+", "i64"),
    ("i32", "2.5", "*", "f32"),
    ("i8", "3", "+", "i8"),
    ("i1", "3", "+", "i32"),
    ("i32", "True", "+", "i32"),
    ("f32", "7", "-", "f32"),
]


def result_type(body: str, **signature: str) -> str:
    text = "import triton\nimport triton.language as tl\n@triton.jit\ndef kernel(a, b, out):\n"
    source = KernelSource.from_text(text + f"    z = {body}\n    tl.store(out, z)\n", "kernel")
    function = lower(source, {**signature, "out": "*f64"}, {})
    (value,) = [r for op in function.walk() for r in op.results if r.name == "z"]
    return str(value.type)


@pytest.mark.parametrize(("a", "b", "op", "wanted"), TENSORS)
def test_two_tensors(a, b, op, wanted):
    assert result_type(f"a {op} b", a=a, b=b) == wanted
    assert result_type(f"b {op} a", a=a, b=b) == wanted


@pytest.mark.parametrize(("a", "number", "op", "wanted"), NUMBERS)
def test_tensor_and_number(a, number, op, wanted):
    assert result_type(f"a {op} {number}", a=a, b="i32") == wanted
    assert result_type(f"{number} {op} a", a=a, b="i32") == wanted


@pytest.mark.parametrize("op", ["//", "%"])
def test_mixed_signs_do_not_divide(op):
    with pytest.raises(TypeMismatch, match="signed"):
        result_type(f"a {op} b", a="u32", b="i32")


def test_a_number_out_of_range_is_an_error():
    with pytest.raises(TypeMismatch, match="out of range for i8"):
        result_type("a + 300", a="i8", b="i32")
