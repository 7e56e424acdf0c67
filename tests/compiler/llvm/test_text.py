"""The text builder: exact constants, declarations once, chunks that grow."""

from __future__ import annotations

import math
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deuteron.compiler.llvm.text import (
    FunctionText,
    ModuleText,
    bytes_constant,
    float_constant,
    quoted,
)


@given(st.floats(width=32))
def test_f32_constants_are_exact(value: float) -> None:
    text = float_constant(value, "float")
    back = struct.unpack("<d", struct.pack("<Q", int(text, 16)))[0]
    assert back == value or (math.isnan(back) and math.isnan(value))


@given(st.floats(allow_nan=False))
def test_narrow_constants_round_to_nearest_even(value: float) -> None:
    with np.errstate(over="ignore"):
        half = np.float64(value).astype(np.float16)
        brain = np.float32(value).astype(ml_dtypes.bfloat16)
    assert float_constant(value, "half") == f"0xH{half.view(np.uint16):04X}"
    assert float_constant(value, "bfloat") == f"0xR{brain.view(np.uint16):04X}"


@pytest.mark.parametrize("type, text", [("bfloat", "0xR7FC0"), ("double", "0x7FF8000000000000")])
def test_nan(type: str, text: str) -> None:
    assert float_constant(math.nan, type) == text


def test_numbers_beyond_f32_become_infinite() -> None:
    assert float_constant(1e300, "float") == "0x7FF0000000000000"
    assert float_constant(-1e300, "bfloat") == "0xRFF80"


def test_declarations_and_strings_are_made_once() -> None:
    module = ModuleText("nvptx64-nvidia-cuda")
    function = FunctionText(module, "define void @f(float %x)")
    first = function.call("float", "llvm.fabs.f32", [("float", "%x")])
    second = function.call("float", "llvm.fabs.f32", [("float", first)])
    assert first != second
    assert module.string("hello") == module.string("hello") != module.string("bye")
    text = str(module)
    assert text.count("declare float @llvm.fabs.f32(float)") == 1
    assert text.count("@.str") == 2


def test_code_can_be_added_to_an_earlier_chunk() -> None:
    module = ModuleText("nvptx64-nvidia-cuda")
    function = FunctionText(module, "define i32 @f(i32 %x)")
    early = function.chunk()
    function.chunk()
    function.do("ret i32 %v1")
    with function.at(early):
        assert function.op("add i32 %x, 1") == "%v1"
    lines = [line.strip() for line in function.lines()]
    assert lines.index("%v1 = add i32 %x, 1") < lines.index("ret i32 %v1")


def test_assembly_results_and_quoting() -> None:
    module = ModuleText("nvptx64-nvidia-cuda")
    function = FunctionText(module, "define void @f(i32 %x)")
    results = function.asm(["i32", "i32"], 'say "hi";\n', "=r,=r,r", [("i32", "%x")], convergent=True)
    assert len(set(results)) == 2
    text = str(module)
    assert r'asm sideeffect "say \22hi\22;\0A", "=r,=r,r"(i32 %x) convergent' in text
    assert text.count("extractvalue {i32, i32}") == 2
    assert function.asm([], "bar;", "", []) == []


def test_bytes_and_quotes() -> None:
    assert bytes_constant(b'a"\0') == 'c"\\61\\22\\00"'
    assert quoted("a\\b") == "a\\5Cb"
