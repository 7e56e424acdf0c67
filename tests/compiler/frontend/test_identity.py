"""A kernel's hash tells apart whatever may be compiled to other code."""

from __future__ import annotations

import importlib
import itertools
import sys

import numpy as np
import pytest

from deuteron.compiler.errors import UnknownName, UnsupportedSyntax
from deuteron.compiler.frontend import KernelSource

KERNEL = """
@triton.jit
def kernel(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, f(tl.load(x + i)) + g(tl.load(x + i)))
"""
IMPORTS = "import triton\nimport triton.language as tl\n"


def identity(before: str, kernel: str = KERNEL) -> str:
    return KernelSource.from_text(before + kernel, "kernel").hash


MEANINGS = [
    IMPORTS + "from triton.language import exp as f, exp as g",
    IMPORTS + "from triton.language import exp as f, exp2 as g",
    IMPORTS + "from triton.language import exp2 as f, exp as g",
    IMPORTS + "from triton.language import sigmoid as f, softmax as g",
    IMPORTS + "from triton.language import softmax as f, sigmoid as g",
    IMPORTS + "from triton.language.extra.libdevice import exp as f, exp as g",
    IMPORTS + "from triton.language import exp as f",
    IMPORTS,
    "import triton\nfrom triton.language import exp as f, exp as g",
    "import triton\nimport triton.language.extra.libdevice as tl\nfrom triton.language import exp as f, exp as g",
    *(
        f"{IMPORTS}A = tl.constexpr({a})\nB = tl.constexpr({b})\n"
        f"@triton.jit\ndef f(x):\n    return x * A\n@triton.jit\ndef g(x):\n    return x * B"
        for a, b in [(1, 2), (2, 1), (1, 1), (True, 1), (1.0, 1), ("tl.float16", 1), ("(1, 2)", 1), ("(1, (2,))", 1)]
    ),
]


def test_what_names_mean_is_part_of_it() -> None:
    """Also of names that nobody knows: the same text with them is compiled, without them it is an error."""
    found = {before: identity(before) for before in MEANINGS}
    for one, other in itertools.combinations(MEANINGS, 2):
        assert found[one] != found[other], f"{one}\n\n{other}"


def test_functions_that_change_places_are_told_apart() -> None:
    first = "\n@triton.jit\ndef {}(x):\n    return x + 1"
    second = "\n@triton.jit\ndef {}(x):\n    return x * 3"
    made = [IMPORTS + one.format("f") + other.format("g") for one, other in [(first, second), (second, first)]]
    # Named as they are called, and by constants.
    assert identity(made[0]) != identity(made[1])
    named = IMPORTS + first.format("one") + second.format("other") + "\nf = {}\ng = {}\n"
    assert identity(named.format("one", "other")) != identity(named.format("other", "one"))


def test_functions_of_one_text_whose_names_mean_other_things(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They live in different modules."""
    monkeypatch.syspath_prepend(tmp_path)
    text = "import deuteron as triton\nimport deuteron.language as tl\nC = tl.constexpr({})\n"
    text += "@triton.jit\ndef scale(x):\n    return x * C\n"
    (tmp_path / "identity_one.py").write_text(text.format(1))
    (tmp_path / "identity_two.py").write_text(text.format(2))
    import identity_one
    import identity_two

    import deuteron
    import deuteron.language as tl

    def made(f, g):
        def kernel(x, BLOCK: tl.constexpr):
            i = tl.arange(0, BLOCK)
            tl.store(x + i, f(tl.load(x + i)) + g(tl.load(x + i)))

        return deuteron.jit(kernel).source.hash

    one, two = identity_one.scale, identity_two.scale
    assert len({made(f, g) for f, g in itertools.product((one, two), repeat=2)}) == 4
    assert made(one, two) == made(one, two)


def test_comments_and_places_are_no_part_of_it() -> None:
    before = IMPORTS + "from triton.language import exp as f, exp2 as g"
    assert identity(before) == identity(before + "\n\n# more\nunused = 3\n")
    assert identity(before) == identity(before, KERNEL.replace("    i =", "    # first\n    i ="))


def test_functions_that_call_each_other_end() -> None:
    text = "\n@triton.jit\ndef f(x):\n    return g(x)\n@triton.jit\ndef g(x):\n    return f(x)\n"
    assert identity(IMPORTS + text) == identity(IMPORTS + text)


LIVE = """
import deuteron as triton
import deuteron.language as tl
from typing import NamedTuple

C = tl.constexpr({value})
@triton.jit
def add(x):
    return x + {value}
ADDERS = tl.constexpr((add,))
class Pair(NamedTuple):
    first: int
    second: int = tl.constexpr({value})
def with_default(default):
    @triton.jit
    def helper(x, y=default):
        return x + y
    return helper
helper = with_default({value})

@triton.jit
def of_a_comprehension(out):
    doubled = [2 * C for C in (1, 2)]
    tl.store(out, C + doubled[0])
@triton.jit
def of_a_tuple(out):
    tl.store(out, ADDERS[0](tl.load(out)))
@triton.jit
def of_a_class(out):
    tl.store(out, Pair(1).second)
@triton.jit
def of_a_default(out):
    tl.store(out, helper(tl.load(out)))
@triton.jit
def of_its_own_name(out, C=C):
    tl.store(out, C)
"""


@pytest.mark.parametrize("name", ["of_a_comprehension", "of_a_tuple", "of_a_class", "of_a_default", "of_its_own_name"])
def test_what_names_of_the_running_program_mean(tmp_path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Kernels of one text whose constants, reached in some other way than by a plain global, are 3 and 5; the modules
    have one name, which must not be what tells them apart."""
    hashes = []
    for value in (3, 5):
        (tmp_path / str(value)).mkdir()
        (tmp_path / str(value) / "identity_live.py").write_text(LIVE.format(value=value))
        monkeypatch.syspath_prepend(tmp_path / str(value))
        monkeypatch.delitem(sys.modules, "identity_live", raising=False)
        kernel = getattr(importlib.import_module("identity_live"), name)
        out = np.zeros(1, np.int32)
        kernel[(1,)](out)
        assert out[0] == value + 2 * (name == "of_a_comprehension")
        hashes.append(kernel.source.hash)
    assert hashes[0] != hashes[1]


def test_a_default_is_what_it_was_when_the_function_was_defined(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    text = LIVE.format(value=3).replace("helper = with_default(3)", "helper = with_default(C)\nC = tl.constexpr(5)")
    (tmp_path / "identity_defaults.py").write_text(text)
    out = np.zeros(1, np.int32)
    importlib.import_module("identity_defaults").of_a_default[(1,)](out)
    assert out[0] == 3


@pytest.mark.parametrize("use", ["m = other\n    tl.store(out, m.C)", "tl.store(out, getattr(other, 'C'))"])
def test_modules_are_no_values(tmp_path, monkeypatch: pytest.MonkeyPatch, use: str) -> None:
    """What a kernel takes of a module is found by looking for ``module.name`` in its text."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "identity_other.py").write_text("import deuteron.language as tl\nC = tl.constexpr(3)\n")
    text = "import deuteron as triton, deuteron.language as tl, identity_other as other\n"
    file = f"identity_modules_{len(use)}"
    (tmp_path / f"{file}.py").write_text(f"{text}@triton.jit\ndef kernel(out):\n    {use}\n")
    with pytest.raises(UnsupportedSyntax, match="the module other is no value"):
        importlib.import_module(file).kernel[(1,)](np.zeros(1, np.int32))


@pytest.mark.parametrize("name", ["C", "D"])
def test_a_variable_that_is_not_assigned_is_the_global_of_its_name(
    tmp_path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As in Triton; and part of the hash where there is one."""
    monkeypatch.syspath_prepend(tmp_path)
    hashes = set()
    for value in (3, 4):
        text = "@triton.jit\ndef kernel(out, F: tl.constexpr):\n    if F:\n        NAME = 1\n    tl.store(out, NAME)\n"
        module = f"identity_unbound_{name}_{value}"
        (tmp_path / f"{module}.py").write_text(LIVE.format(value=value) + text.replace("NAME", name))
        kernel, out = importlib.import_module(module).kernel, np.zeros(1, np.int32)
        kernel[(1,)](out, F=True)
        assert out[0] == 1
        hashes.add(kernel.source.hash)
        if name == "C":
            kernel[(1,)](out, F=False)
            assert out[0] == value
        else:
            with pytest.raises(UnknownName, match="'D' is not defined here: kernel assigns it"):
                kernel[(1,)](out, F=False)
    assert len(hashes) == (2 if name == "C" else 1)
