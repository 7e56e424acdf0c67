"""Scopes of a profiler as a kernel says them: which ones are refused, and their operation in the tile IR."""

from __future__ import annotations

import re

import pytest

from deuteron.compiler.errors import CompilationError, DeuteronError
from deuteron.compiler.ir import Builder, Function, Tile, parse_function, print_function
from deuteron.compiler.ir.types import I32
from deuteron.compiler.runtime.variant.pipeline import build
from deuteron.compiler.runtime.variant.variant import make_variant
from deuteron.compiler.source.kernel import KernelSource
from deuteron.compiler.tile.records import Record

BAD = {
    "an end without a beginning": (
        'pl.exit_scope("a")',
        "exit_scope('a'): no scope begins before it",
        'pl.exit_scope("a")',
    ),
    "a beginning without an end": (
        'pl.enter_scope("a")',
        "the scope 'a' is not ended in the branch or loop body in which it begins",
        'pl.enter_scope("a")',
    ),
    "scopes that overlap": (
        'pl.enter_scope("a"); pl.enter_scope("b"); pl.exit_scope("a"); pl.exit_scope("b")',
        "exit_scope('a'): the scope 'b', which begins in line 7, must end first",
        'pl.exit_scope("a")',
    ),
    "an end in a branch": (
        'pl.enter_scope("a")\n    if n > 1:\n        pl.exit_scope("a")',
        "exit_scope('a'): no scope begins before it in the same branch",
        'pl.exit_scope("a")',
    ),
    "a return inside": (
        'with pl.scope("a"):\n        if n > 1:\n            return',
        "a return, break or continue inside a scope leaves it open",
        'pl.scope("a")',
    ),
    "a name that is not known": (
        "pl.enter_scope(n)",
        "enter_scope takes a name that is known at compile time",
        "pl.enter_scope(n)",
    ),
    "a number as a name": ("pl.enter_scope(3)", "enter_scope takes a name", "pl.enter_scope(3)"),
    "no name": ('pl.enter_scope("")', "a scope needs a name", 'pl.enter_scope("")'),
    "another context": (
        "with n:\n        n = 1",
        "'with' is part of the kernel language for scopes of a profiler only",
        "with n",
    ),
    "a name for the context": ('with pl.scope("a") as b:\n        n = 1', "'with' is part of", "with pl"),
    "in a combining function": (
        "tl.store(x, tl.reduce(tl.load(x + tl.arange(0, 16)), 0, combine))",
        "the scope 'c' is in a function that reduce calls for elements",
        'pl.enter_scope("c")',
    ),
    "in a called function": ("helper(n)", "the scope 'h' is not ended", 'pl.enter_scope("h")'),
}
HEAD = """import deuteron.language as tl
import deuteron.profiler.language as pl

@deuteron.jit
def kernel(x, n):
    tl.store(x, 1.0)
    {}

@deuteron.jit
def combine(a, b):
    pl.enter_scope("c")
    pl.exit_scope("c")
    return a + b

@deuteron.jit
def helper(n):
    pl.enter_scope("h")
"""


@pytest.mark.parametrize("mistake", BAD)
def test_misuse_is_an_error_with_its_place(mistake) -> None:
    text, message, under = BAD[mistake]
    source = KernelSource.from_text(HEAD.format(text), "kernel", "kernel.py")
    with pytest.raises(CompilationError) as raised:
        build(make_variant(source, {"x": "*fp32", "n": "i32"}, {}, "cpu", {}), stop_after="tile")
    shown = str(raised.value)
    assert message in shown
    place, line, caret, *_ = shown.splitlines()
    assert re.match(r"kernel\.py:\d+:\d+: ", place)
    assert line[caret.index("^") :].startswith(under)


def test_an_operation_as_text_is_read_back() -> None:
    function = Function("k")
    builder = Builder(function.body)
    for enter in (True, False):
        builder.emit(Record(None, 'a "b"', enter))
    text = print_function(function)
    assert print_function(parse_function(text)) == text
    assert [op.name for op in parse_function(text).walk()] == ['a "b"'] * 2


def test_a_buffer_is_a_pointer() -> None:
    function = Function("k")
    x = function.add_parameter("x", Tile(I32))
    with pytest.raises(DeuteronError, match="the buffer must be a scalar pointer to i64"):
        Record(x, "a", True)
