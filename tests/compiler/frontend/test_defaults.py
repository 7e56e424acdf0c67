"""What the defaults of a kernel's parameters are, where the kernel is a text that is never executed."""

from __future__ import annotations

import re

import pytest

from deuteron.compiler.errors import CompilationError
from deuteron.compiler.frontend import KernelSource, lower
from deuteron.compiler.language.constexpr import unwrap

DEFAULTS = "import triton\nimport triton.language as tl\nfrom other import WIDTH\nDOUBLE = WIDTH * 2\n{before}\n"
DEFAULTS += "@triton.jit\ndef kernel(out, V: tl.constexpr = {default}):\n    tl.store(out, V)\n"


@pytest.mark.parametrize(
    ("default", "value"),
    [
        ("float('-inf')", float("-inf")),
        ("tl.constexpr(-float('inf'))", float("-inf")),
        ("LOW", float("-inf")),
        ("int(2.5) + max(1, 2, 3) - min(4, 5) + abs(-7)", 8),
        ("bool(3)", True),
    ],
)
def test_defaults_of_texts_may_call_pythons_functions_of_numbers(default: str, value: object) -> None:
    text = DEFAULTS.format(before="LOW: tl.constexpr = float('-inf')", default=default)
    source = KernelSource.from_text(text, "kernel")
    assert unwrap(source.default(source.arguments[1])) == value
    assert source.hash != KernelSource.from_text(text.replace(f"= {default})", "= 2.5)"), "kernel").hash
    lower(source, {"out": "*fp32"}, {"V": 1})


@pytest.mark.parametrize(
    ("default", "message"),
    [
        ("WIDTH", "the default of 'V' is not known from the text: WIDTH"),
        ("DOUBLE", "is not known from the text: DOUBLE"),
        ("torch.finfo(torch.float32).max", "is not known from the text: torch.finfo"),
        ("V", "is not known from the text: V"),
        ("float('x')", "could not convert"),
        ("max(1)", "two or more"),
        ("abs('a')", "bad operand"),
        ("[1]", "'[1]' is not a constant"),
    ],
)
def test_a_default_that_a_text_does_not_say_is_refused_where_it_is_needed(default: str, message: str) -> None:
    """Who passes the argument does not need it, as in Triton."""
    source = KernelSource.from_text(DEFAULTS.format(before="", default=default), "kernel")
    assert len(source.hash) == 64
    lower(source, {"out": "*fp32"}, {"V": 1})
    with pytest.raises(CompilationError, match=re.escape(message)) as caught:
        lower(source, {"out": "*fp32"}, {})
    assert caught.value.location is not None and caught.value.location.line == 7
