"""Names that kernels cannot use, and what to write instead."""

from __future__ import annotations

import re

import numpy as np
import pytest

from deuteron.compiler import errors
from deuteron.compiler.frontend import KernelSource
from deuteron.compiler.source.modules import suggest
from deuteron.compiler.source.namespace import admit

HEAD = "import triton\nimport triton.language as tl\nSCALE = 3\n@triton.jit\ndef kernel(x, n, B: tl.constexpr):\n"


def test_globals_must_be_constexpr():
    source = KernelSource.from_text(HEAD + "    y = n * SCALE\n    tl.store(x, y)\n", "kernel")
    assert source.hash  # a literal constant of the text is captured by value
    other = KernelSource.from_text(
        HEAD.replace("SCALE = 3", "SCALE = 4") + "    y = n * SCALE\n    tl.store(x, y)\n", "kernel"
    )
    assert source.hash != other.hash


def test_unknown_function_lists_what_is_there():
    with pytest.raises(errors.UnknownName, match="kernel"):
        KernelSource.from_text(HEAD + "    pass\n", "kernal")


@pytest.mark.parametrize(
    ("value", "message", "hint"),
    [
        (np.exp, "'VALUE' is Python, not a function", "write tl.exp"),
        (np.float32, "'VALUE' is Python, not a type", "write tl.float32"),
        (np.ndarray, "'VALUE' is Python, not a type", None),
        (type("Own", (), {}), "'VALUE' is Python, not a type", "decorate it with @deuteron.aggregate"),
        (lambda x: x, "'VALUE' is Python, not a function", "decorate it with @deuteron.jit"),
        (np.ones(4), "global variable 'VALUE'", "pass it to the kernel as an argument"),
        ([1], "global variable 'VALUE'", r"write VALUE = tl.constexpr\(\[1\]\)"),
    ],
)
def test_what_to_write_for_pythons_own(value: object, message: str, hint: str | None):
    with pytest.raises(errors.UnknownName, match=message) as caught:
        admit("VALUE", value)
    assert re.match(hint or "", caught.value.hint or "") and bool(hint) == bool(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("storee", ["core", "sort", "store"], "did you mean store?"),
        ("ad", ["bad", "add"], "did you mean add or bad?"),
        ("expp", ["exp", "exp2", "log"], "did you mean exp?"),
        ("xyz", ["add"], None),
    ],
)
def test_only_near_names_are_suggested(name: str, known: list[str], hint: str | None):
    assert suggest(name, known) == hint
