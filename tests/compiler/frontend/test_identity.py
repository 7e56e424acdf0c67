"""A kernel's hash tells apart whatever may be compiled to other code."""

from __future__ import annotations

import itertools

import pytest

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
