"""What ``compile`` refuses: wrong types, signatures, options and targets, each with its message."""

from __future__ import annotations

from typing import Any

import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler.errors import DeuteronError, IllegalSchedule, SignatureError, TargetError
from deuteron.compiler.signature import parse_argument_type


@deuteron.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n)
    tl.store(out + i, total, mask=i < n)


ADD = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32"}


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("*fp32:16", "*f32:16"),
        ("*bf16", "*bf16"),
        (" *f16 ", "*f16"),
        ("*const fp16:16", "*const f16:16"),
        ("*kf32", "*const f32"),
        ("*fp8e4nv", "*f8e4m3"),
        ("i32:16", "i32:16"),
        ("i32:1", "i32:1"),
        ("i64", "i64"),
        ("u1", "i1"),
        ("*u1", "*i1"),
        ("fp64", "f64"),
    ],
)
def test_type_spellings(text: str, canonical: str) -> None:
    assert str(parse_argument_type(text)) == canonical
    assert str(parse_argument_type(canonical)) == canonical


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "cannot read the argument type ''", "*f32"),
        ("*", "cannot read", "*bf16:16"),
        ("**f32", "cannot read", "i32"),
        ("*fp33", "unknown dtype 'fp33'", "did you mean 'fp32'"),
        ("string", "unknown dtype 'string'", "use i1 i8"),
        ("*fp32:8", "unknown promise ':8'", ":16"),
        ("fp32:16", "divisibility of a floating-point number", '"f32"'),
        ("*fp32:1", "says that a pointer is 1", ":16"),
    ],
)
def test_wrong_types(text: str, message: str, hint: str) -> None:
    with pytest.raises(SignatureError) as caught:
        parse_argument_type(text)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


WRONG: list[tuple[dict[str, Any], type[DeuteronError], str, str]] = [
    ({"signature": {**ADD, "m": "i32"}}, SignatureError, "add has no parameter 'm'", "known"),
    ({"constexprs": {"BLOK": 1}}, SignatureError, "no parameter 'BLOK'", "did you mean 'BLOCK'"),
    (
        {"constexprs": {}},
        SignatureError,
        "no value for its parameter 'BLOCK'",
        "constexprs={'BLOCK'",
    ),
    ({"signature": {}}, SignatureError, "no type for its parameter 'x'", "signature={'x'"),
    (
        {"signature": {**ADD, "BLOCK": "i32"}, "constexprs": {}},
        SignatureError,
        "declares 'BLOCK' as tl.constexpr",
        "constexprs={'BLOCK': ...}",
    ),
    ({"constexprs": {"BLOCK": object()}}, SignatureError, "'BLOCK': a builtins.object", "numbers"),
    ({"signature": None}, SignatureError, "the signature of add is None", "by name"),
    ({"target": 7}, TargetError, "unknown target 7", "cuda:90a"),
    ({"target": "cuda:91"}, TargetError, "unknown target 'cuda:91'", "cuda:90a"),
    ({"num_wraps": 8}, SignatureError, "option 'num_wraps'", "did you mean 'num_warps'"),
    ({"num_stages": True}, SignatureError, "num_stages = True", "takes an int"),
    ({"persistent": 1}, SignatureError, "persistent = 1", "takes a bool"),
    ({"num_warps": 5}, IllegalSchedule, "num_warps = 5", "1, 2, 4, 8"),
    ({"num_stages": -1}, IllegalSchedule, "num_stages = -1", "0 or more"),
    ({"maxnreg": 300}, IllegalSchedule, "maxnreg = 300", "16 to 256"),
    ({"stop_after": "ptx"}, SignatureError, "the target cpu has no stage 'ptx'", "tile, llvm"),
    ({"kernel": print}, SignatureError, "cannot compile a builtin", "@deuteron.jit"),
]


@pytest.mark.parametrize(("changes", "kind", "message", "hint"), WRONG)
def test_wrong_input(changes: Any, kind: Any, message: str, hint: str) -> None:
    arguments = {"kernel": add, "signature": ADD, "constexprs": {"BLOCK": 64}, **changes}
    with pytest.raises(kind) as caught:
        deuteron.compile(**arguments)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
