"""What users get wrong, and the message that names the place and the remedy."""

from __future__ import annotations

import re
from typing import Any

import pytest

from deuteron.compiler import errors
from deuteron.compiler.frontend import KernelSource, lower

HEAD = "import triton\nimport triton.language as tl\nSCALE = 3\n@triton.jit\ndef kernel(x, n, B: tl.constexpr):\n"

#: body, error class, part of the message, part of the hint, text under the caret
CASES = [
    ("y = tl.lod(x)", errors.UnknownName, "no 'lod'", "load", "tl.lod"),
    (
        "y = n\n    for i in range(n):\n        y = 'a'",
        errors.TypeMismatch,
        "'y' has no type that a branch or loop can change: 'a'",
        "",
        "for i in range(n)",
    ),
    (
        "y = None\n    if n > 1:\n        y = n",
        errors.TypeMismatch,
        "'y' has no type that a branch or loop can change: None",
        "",
        "if n > 1",
    ),
    ("y = foo + 1", errors.UnknownName, "'foo' is not defined", "jit functions", "foo"),
    ("y = x.sumx()", errors.UnknownName, "no attribute 'sumx'", "sum", "x.sumx"),
    ("o = tl.arange(0, 100)", errors.TypeMismatch, "100 elements", "arange(0, 128)", "tl.arange"),
    (
        "o = tl.zeros((3, 4), tl.float32)",
        errors.TypeMismatch,
        "powers of two",
        "2 or 4",
        "tl.zeros",
    ),
    (
        "o = tl.arange(0, n)",
        errors.TypeMismatch,
        "known at compile time",
        "tl.constexpr",
        "tl.arange",
    ),
    (
        "o = tl.arange(0, 8)[:, None] + tl.arange(0, 16)[:, None]",
        errors.TypeMismatch,
        "cannot broadcast shapes [8, 1] and [16, 1]",
        "x[:, None]",
        "tl.arange(0, 8)[:, None] +",
    ),
    ("y = tl.load(n)", errors.TypeMismatch, "load needs a pointer", "offsets", "tl.load"),
    ("y = tl.load(x, other=0.0)", errors.TypeMismatch, "without a mask", "mask=", "tl.load"),
    (
        "tl.store(x, tl.arange(0, 4))",
        errors.TypeMismatch,
        "takes one value",
        "tl.arange",
        "tl.store",
    ),
    ("y = tl.load(x, cache_modifier='.xx')", errors.TypeMismatch, "cache", ".ca", "tl.load"),
    ("y = x ** 2", errors.UnsupportedSyntax, "** is not", "libdevice.pow", "x ** 2"),
    ("y = x[0]", errors.TypeMismatch, "pointers are not indexed", "tl.load", "x[0]"),
    ("y = tl.program_id(3)", errors.TypeMismatch, "must be 0, 1, or 2 but got 3", "", "tl.program_id"),
    ("y = tl.sum(tl.arange(0, 4), 1)", errors.TypeMismatch, "invalid axis 1: it is outside", "0", "tl.sum"),
    ("y = tl.load(x).to('float16')", errors.TypeMismatch, "element type", "tl.float16", "tl.load"),
    ("tl.store(x, 'a')", errors.TypeMismatch, "holds numbers, got 'a'", "", "tl.store"),
    ("tl.store(x)", errors.UnsupportedSyntax, "store(): missing", "pointer, value", "tl.store"),
    ("y = tl.load(x, masks=1)", errors.UnsupportedSyntax, "'masks'", "pointer, mask", "tl.load"),
    (
        "y = tl.load(x + tl.arange(0, 4), tl.arange(0, 8) < n)",
        errors.TypeMismatch,
        "cannot broadcast shapes [4] and [8]",
        "add a dimension",
        "tl.load",
    ),
    ("tl.store(x + tl.arange(0, 4), 1, mask=tl.arange(0, 4))", errors.TypeMismatch, "int1", "offsets < n", "tl.store"),
    ("y = tl.load(x, mask=n)", errors.TypeMismatch, "a mask is int1, got i32", "mask != 0", "tl.load"),
    ("y = tl.load(x, mask=B)", errors.TypeMismatch, "a mask is int1, got i32", "mask != 0", "tl.load"),
    ("tl.store(x, 1.0, mask=n * 0.5)", errors.TypeMismatch, "a mask is int1, got f32", "offsets < n", "tl.store"),
    ("tl.atomic_add(x, 1.0, mask=n)", errors.TypeMismatch, "a mask is int1, got i32", "offsets < n", "tl.atomic_add"),
    ("y = tl.arange(0, 4) < x", errors.TypeMismatch, "i32 and *f32", "tl.load", "tl.arange"),
    ("y = x == 0", errors.TypeMismatch, "type *f32 and i32: an array", "p.to(tl.int64)", "x == 0"),
    ("y = n == None", errors.TypeMismatch, "None cannot be combined", "`is`", "n == None"),
    ("y = None < tl.arange(0, 4)", errors.TypeMismatch, "None cannot be combined", "`is`", "None <"),
    ("y = tl.make_block_ptr(x)", errors.UnsupportedSyntax, "missing 5", "block_shape", "tl.make"),
    (
        "y = tl._experimental_descriptor_load(x, [0], [8], tl.float32)",
        errors.UnknownName,
        "no '_experimental_descriptor_load'",
        "make_tensor_descriptor",
        "tl._exp",
    ),
    ("y = tl.math.max(n, 0)", errors.UnknownName, "math has no 'max'", "tl.maximum", "tl.math.max"),
    ("y = tl.math.min(n, 0)", errors.UnknownName, "math has no 'min'", "tl.minimum", "tl.math.min"),
    ("y = tl.math.tanh(n)", errors.UnknownName, "math has no 'tanh'", "tl.extra.libdevice.tanh", "tl.math.tanh"),
    ("y = tl.libdevice.erf(n)", errors.UnknownName, "no 'libdevice'", "tl.extra.libdevice", "tl.libdevice"),
    ("y = tl.dot_scaled(x)", errors.UnsupportedSyntax, "missing 5 required", "its parameters: lhs", "tl.dot_scaled"),
    ("y = []\n    y.append(1)", errors.UnknownName, "'append'", "x + (item,)", "y.append"),
    (
        "y = (1, 2)\n    for i in range(2): z = y[i]",
        errors.UnsupportedSyntax,
        "a tuple of 2",
        "tl.static_range",
        "y[i]",
    ),
    ("if n > 1: break", errors.UnsupportedSyntax, "'break' outside a loop", "return", "break"),
    ("continue", errors.UnsupportedSyntax, "'continue' outside a loop", "return", "continue"),
    (
        "for i in range(n):\n        if i > 3: break\n        y = i\n    z = y",
        errors.UnknownName,
        "inside the loop",
        "before the loop",
        "y",
    ),
    (
        "for i in range(n): pass\n    if n > 3:\n        for i in range(2): pass\n    z = i",
        errors.UnknownName,
        "counts a loop in one branch",
        "before the 'if'",
        "i",
    ),
    (
        "for i in range(n): pass\n    for j in range(n):\n        z = i\n        i = j",
        errors.UnknownName,
        "counts another loop above",
        "another name",
        "i",
    ),
    (
        "for i in range(n):\n        i = 2 * i\n    z = i",
        errors.UnknownName,
        "only inside the loop",
        "before the loop",
        "i",
    ),
    (
        "for i in tl.static_range(3):\n        if n > i: break\n        y = i\n    z = y",
        errors.UnknownName,
        "may skip its definition",
        "before the loop",
        "y",
    ),
    (
        "for i in tl.static_range(3):\n        if n > 0:\n            if n > i: break\n            y = i\n"
        "        else: y = 2\n        for j in range(n): tl.store(x, 1.0)\n    z = y",
        errors.UnknownName,
        "may skip its definition",
        "before the loop",
        "y",
    ),
    (
        "if n > 3: v = 1.0\n    tl.store(x, v)",
        errors.UnknownName,
        "only one branch",
        "before the 'if'",
        "v)",
    ),
    (
        "y = tl.zeros((4,), tl.int32)\n    for i in range(n): y += 1.5",
        errors.TypeMismatch,
        "loop-carried variable 'y'",
        ".to(tl.int32)",
        "y += 1.5",
    ),
    (
        "y = tl.dot(tl.zeros((4,), tl.float32), tl.zeros((4,), tl.float32))",
        errors.TypeMismatch,
        "two tiles of rank 2",
        "tl.sum(a * b, axis)",
        "tl.dot",
    ),
    ("import os", errors.UnsupportedSyntax, "an import", "outside the kernel", "import os"),
    (
        "y = [i for i in n]",
        errors.UnsupportedSyntax,
        "a list comprehension over",
        "it takes a tuple",
        "n]",
    ),
    ("open('f')", errors.UnknownName, "'open' is not defined", "", "open"),
    ("x.__class__", errors.UnknownName, "no attribute '__class__'", "", "x.__class__"),
    ("x[0] = 1", errors.UnsupportedSyntax, "only names", "tl.store", "x[0]"),
    (
        "if tl.arange(0, 4) > 2:\n        pass",
        errors.UnsupportedSyntax,
        "one value",
        "tl.where",
        "tl.ar",
    ),
    (
        "tl.static_assert(B > 100, 'B is small')",
        errors.CompileTimeAssertionFailure,
        "B is small",
        "",
        "tl.s",
    ),
    (
        "for i in tl.static_range(n):\n        pass",
        errors.TypeMismatch,
        "compile time",
        "tl.range",
        "tl.s",
    ),
    ("y = 2 ** 100000", errors.UnsupportedSyntax, "256 bits", "", "2 **"),
    ("y = 'a' * 10 ** 9", errors.UnsupportedSyntax, "10000 elements", "", "'a'"),
    ("y = int('7' * 5000)", errors.TypeMismatch, "takes numbers", "", "int("),
    ("y = tl.cdiv(4, 0)", errors.UnsupportedSyntax, "by zero", "", "tl.cdiv"),
    ("y = float('one')", errors.TypeMismatch, "could not convert", "", "float("),
    ("y = int(float('inf'))", errors.TypeMismatch, "infinity", "", "int("),
    (
        "t = (1, 2)\n    for i in tl.static_range(99):\n        t = (t, t)",
        errors.UnsupportedSyntax,
        "10000",
        "",
        "",
    ),
    (
        "s = 'ab'\n    for i in tl.static_range(99):\n        s = s + s",
        errors.UnsupportedSyntax,
        "10000",
        "",
        "",
    ),
    (
        "for i in tl.static_range(4000):\n        for j in tl.static_range(4000):\n            y = i",
        errors.UnsupportedSyntax,
        "200000 statements",
        "tl.range",
        "y = i",
    ),
    ("tl.static_print(f'{n:>999999999}')", errors.UnsupportedSyntax, "64 wide", "", ""),
    ("y = tl.dot(tl.zeros((16, 16), tl.float16), x)", errors.TypeMismatch, "rank 2", "", "tl.dot"),
    (
        "a = tl.zeros((16, 16), tl.float16)\n    b = tl.zeros((32, 16), tl.float16)\n    y = tl.dot(a, b)",
        errors.TypeMismatch,
        "inner dimensions differ: 16 of the first operand, 32 of the second",
        "",
        "tl.dot",
    ),
    (
        "y = tl.arange(0, 8)\n    for i in range(n):\n        y = tl.arange(0, 4)",
        errors.TypeMismatch,
        "loop-carried variable 'y' is tile<8xi32> before the loop and tile<4xi32>",
        "one type",
        "y = tl",
    ),
    (
        "for i in range(n):\n        y = i\n    z = y",
        errors.UnknownName,
        "inside the loop",
        "",
        "y",
    ),
    ("if n > 1:\n        y = 1\n    z = y", errors.UnknownName, "only one branch", "", "y"),
    (
        "for i in range(n):\n        if i > 3: return 5",
        errors.TypeMismatch,
        "returns a value on one path and none on another",
        "every path",
        "def",
    ),
    ("return n", errors.UnsupportedSyntax, "does not return", "store", "return n"),
    ("y = n // 0.5", errors.TypeMismatch, "// takes integers", "tl.floor", "n //"),
    ("y = x + 1.5", errors.TypeMismatch, "moves by integers", ".to(tl.int64)", "x +"),
    ("y = tl.atomic_add(x, 1, sem='weird')", errors.TypeMismatch, "weird", "acq_rel", "tl.atomic"),
    ("y = tl.sum(n, 0)", errors.TypeMismatch, "a reduction needs tiles", "", "tl.sum"),
    ("y = tl.reduce((), 0, max)", errors.TypeMismatch, "a reduction needs tiles, got none", "", "tl.reduce"),
    ("y = tl.sum(tl.arange(0, 8), 0, True, True)", errors.TypeMismatch, "an element type such as", "", "tl.sum"),
    ("y = tl.cumsum(tl.arange(0, 8), dtype=8)", errors.TypeMismatch, "an element type such as", "", "tl.cumsum"),
    ("y = x + x", errors.TypeMismatch, "cannot add pointers together", "by a number of elements", "x +"),
    ("y = tl.arange(8, 0)", errors.TypeMismatch, "arange(8, 0) ends before it begins", "", "tl.arange"),
    ("y = tl.arange(0, 8.0)", errors.TypeMismatch, "known at compile time, got 8.0", "give it an int", "tl.arange"),
    ("y = tl.load(x, cache_modifier='.x')", errors.TypeMismatch, "unknown cache modifier '.x'", "use .ca, .cg", "tl."),
    ("y = tl.load(x, eviction_policy='x')", errors.TypeMismatch, "unknown eviction policy 'x'", "evict_first", "tl."),
    (
        "y = tl.atomic_add(x, 1, scope='x')",
        errors.TypeMismatch,
        "atomic_add(*f32, f32): unknown scope 'x'",
        "cta",
        "tl.",
    ),
    ("y = tl.multiple_of(n, (16, 16))", errors.TypeMismatch, "multiple_of(i32): needs one value", "", "tl."),
    ("y = ~tl.load(x)", errors.TypeMismatch, "~(f32): needs integers", "", "~tl"),
    ("y = tl.load(x, banana=1)", errors.UnsupportedSyntax, "banana", "", "tl.load"),
]

#: What stands where a value is wanted, and how the message calls it.
NO_VALUES = [
    ("tl(3)", "deuteron.language cannot be called"),
    ("y = tl + 1", "deuteron.language and 1 at compile time"),
    ("tl.store(x, tl)", "holds numbers, got deuteron.language"),
    ("tl.store(x, tl.max)", "holds numbers, got max"),
    ("y = x + tl.math", "deuteron.language.math cannot be combined"),
    ("for j in tl.math: pass", "cannot loop over deuteron.language.math"),
    ("y = tl.reduce(tl.arange(0, 4), 0, max)", "max is not a jit function"),
    ("y = [j for j in range(n)]", "over range(tensor<i32>) has no elements"),
    ("y = [j for j in range(1, n, 2)]", "over range(1, tensor<i32>, 2) has no elements"),
    ("y = tl.load('a' * 1000)", "a" * 190 + "..."),
]


@pytest.mark.parametrize(("body", "message"), NO_VALUES)
def test_messages_are_short_and_the_same_in_every_process(body, message):
    with pytest.raises(errors.CompilationError, match=re.escape(message)) as caught:
        lower(KernelSource.from_text(HEAD + f"    {body}\n", "kernel"), {"x": "*f32:16", "n": "i32"}, {"B": 64})
    assert len(str(caught.value)) < 1500 and " at 0x" not in str(caught.value)


@pytest.mark.parametrize(("body", "kind", "message", "hint", "caret"), CASES)
def test_message_place_and_hint(body, kind, message, hint, caret):
    with pytest.raises(kind) as caught:
        source = KernelSource.from_text(HEAD + f"    {body}\n", "kernel", "user.py")
        lower(source, {"x": "*f32:16", "n": "i32"}, {"B": 64})
    error = caught.value
    assert message in error.message
    assert hint in (error.hint or "")
    text = str(error)
    assert re.match(r"user\.py:\d+:\d+: ", text), text
    assert "compiler/" not in text, "names of internal files leak"
    if caret:
        _, line, pointer, *_ = text.splitlines()
        assert line[pointer.index("^") :].startswith(caret), text


def test_missing_signature_entry_names_the_parameter():
    source = KernelSource.from_text(HEAD + "    pass\n", "kernel")
    with pytest.raises(errors.UnsupportedSyntax, match="'n' of kernel needs a type"):
        lower(source, {"x": "*f32"}, {"B": 1})


@pytest.mark.parametrize("call", [
    "sum(1)", "max(2.5, 0)", "argmin(1, 0)", "cumsum(1)", "xor_sum(input=3)", "trans(1)",
    "reshape(1, (1,))", "ravel(7)",
    "cat(1, 2)", "split(None)", "permute(1, 0)", "zeros_like('a')", "squeeze((1, 2), 0)", "dot(x, x, acc=1)",
    "atomic_add(1, 2)",
])  # fmt: skip
def test_numbers_are_no_tensors(call):
    text = f"{HEAD}    y = tl.{call}\n"
    function = call.split("(")[0]
    with pytest.raises(errors.TypeMismatch, match=rf"{function} takes a tensor as '\w+', got ") as caught:
        lower(KernelSource.from_text(text, "kernel"), {"x": "*fp32", "n": "i32"}, {"B": 4})
    assert caught.value.location is not None and caught.value.location.line == 6


#: The line with the mistake, and what is above it; what of the caret's line is left of the caret.
LINES = [
    ("    é = 'ééé'; y = tl.lod(x)", "", " " * 19),
    ("    '\u65e5\u672c\u8a9e'; y = tl.lod(x)", "", " " * 4 + " " + "  " * 3 + " " * 7),
    ("    'e\u0301'; y = tl.lod(x)", "", " " * 13),
    ("\t\ty = tl.lod(x)", "\tif n:\n", "\t\t    "),
    ("    y = tl.lod(x)", "    \x0c\n\x0c\n", " " * 8),
    ("    y = tl.lod(x)", "    # \x1c \x85 \u2028 \x0b\n", " " * 8),
    ("    y = tl.lod(x)", "    z = n\r\n", " " * 8),
]


@pytest.mark.parametrize(("line", "above", "left"), LINES)
@pytest.mark.parametrize("running", [False, True])
def test_the_caret_is_under_the_mistake_in_any_text(line, above, left, running, tmp_path):
    text = f"import deuteron as triton\nimport deuteron.language as tl\n@triton.jit\ndef kernel(x, n):\n{above}{line}\n"
    path = tmp_path / "user.py"
    path.write_text(text, encoding="utf-8", newline="")
    if running:
        names: dict[str, Any] = {}
        exec(compile(path.read_bytes(), str(path), "exec"), names)  # noqa: S102 -- the text above
        source = names["kernel"].source
    else:
        source = KernelSource.from_text(text, "kernel", str(path))
    with pytest.raises(errors.UnknownName, match="no 'lod'") as caught:
        lower(source, {"x": "*f32:16", "n": "i32"}, {})
    _, shown, pointer, *_ = str(caught.value).split("\n")
    assert caught.value.location == errors.Location(str(path), 5 + above.count("\n"), line.index("tl.lod"))
    assert (shown, pointer) == (line, left + "^")
