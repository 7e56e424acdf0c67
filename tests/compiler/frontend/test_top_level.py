"""What names at the top level of a source text stand for: as in Python where it runs, or nobody can tell."""

from __future__ import annotations

import types

import pytest

from deuteron.compiler.errors import CompilationError, UnknownName, UnsupportedSyntax
from deuteron.compiler.frontend import KernelSource, lower
from deuteron.compiler.ir.printer import print_function
from deuteron.compiler.language.constexpr import unwrap

HEADER = "import deuteron as triton\nimport deuteron.language as tl\n"
KERNEL = "\n@triton.jit\ndef kernel(x):\n    tl.store(x, {value})\n"


def stored(text: str, value: str = "VALUE") -> float:
    """What a kernel of the text stores that knows ``value``; the header is the caller's."""
    source = KernelSource.from_text(text + KERNEL.format(value=value), "kernel")
    made = print_function(lower(source, {"x": "*fp32"}, {}))
    (line,) = (line for line in made.splitlines() if "constant" in line and "f32" in line)
    return float(line.split("value = ")[1].split(",")[0])


@pytest.mark.parametrize(
    "text",
    [
        "VALUE = tl.constexpr(1.0)\nVALUE = tl.constexpr(2.0)",
        "OTHER = tl.constexpr(1.0)\nVALUE = OTHER\nOTHER = tl.constexpr(7.0)",
        "VALUE = tl.constexpr(3.0)\nVALUE = VALUE + 1.0",
        "OTHER, VALUE = tl.constexpr(5.0), tl.constexpr(6.0)",
        "[OTHER, (VALUE, LAST)] = (tl.constexpr(5.0), (tl.constexpr(8.0), 1))",
        "OTHER = VALUE = tl.constexpr(9.0)",
        "VALUE = tl.constexpr(1.0)\nif True:\n    VALUE = tl.constexpr(11.0)",
        "if 0:\n    VALUE = tl.constexpr(1.0)\nelse:\n    VALUE = tl.constexpr(12.0)",
        "VALUE = tl.constexpr(13.0)\nif __name__ == '__main__':\n    VALUE = tl.constexpr(1.0)",
        "from typing import TYPE_CHECKING\nVALUE = tl.constexpr(14.0)\nif TYPE_CHECKING:\n    VALUE = 1.0",
        "VALUE = tl.constexpr(15.0)\nSIZES = tl.constexpr(4)\ndel SIZES",
    ],
)
def test_the_last_binding_counts_and_what_it_is_made_of_is_what_that_was(text: str) -> None:
    ran = types.ModuleType("ran")
    exec(HEADER + text, ran.__dict__)
    assert stored(HEADER + text) == unwrap(ran.__dict__["VALUE"])


def test_defaults_are_what_they_were_where_the_function_was_defined() -> None:
    text = (
        HEADER
        + "N = tl.constexpr(4.0)\n@triton.jit\ndef f(y: tl.constexpr = N):\n    return y\nN = tl.constexpr(8.0)\n"
    )
    assert stored(text, "f()") == 4.0


@pytest.mark.parametrize(
    "first",
    [
        "from triton.language.extra.libdevice import tanh\n",
        "@triton.jit\ndef tanh(x):\n    return x * 3.0\n",
        "if True:\n    from triton.language.extra.libdevice import tanh\n",
    ],
)
def test_a_function_hides_what_was_imported_or_defined_before(first: str) -> None:
    text = f"{HEADER}{first}@triton.jit\ndef tanh(x):\n    return 5.0\n"
    assert stored(text, "tanh(1.0)") == 5.0


def test_the_kernel_itself_may_be_defined_again() -> None:
    again = "if True:\n    @triton.jit\n    def kernel(x):\n        tl.store(x, 2.0)\n"
    source = KernelSource.from_text(HEADER + KERNEL.format(value=1.0) + again, "kernel")
    assert "value = 2.0" in print_function(lower(source, {"x": "*fp32"}, {}))


@pytest.mark.parametrize(
    ("statements", "line"),
    [
        ("VALUE = tl.constexpr(3.0)\nif triton.__version__ >= '3':\n    VALUE = tl.constexpr(7.0)", 5),
        ("try:\n    VALUE = tl.constexpr(3.0)\nexcept ImportError:\n    VALUE = tl.constexpr(4.0)", 4),
        ("VALUE = tl.constexpr(3.0)\nVALUE += 1", 4),
        ("for VALUE in range(3):\n    pass", 3),
        ("with open('x') as VALUE:\n    pass", 3),
        ("VALUE, OTHER = some()", 3),
        ("VALUE, *OTHER = 1.0, 2.0, 3.0", 3),
        ("while some():\n    (VALUE := 3.0)", 4),
        ("VALUE = tl.constexpr(1.0)\nif some():\n    from triton.language import int32 as VALUE", 5),
        ("if some():\n    @triton.jit\n    def VALUE():\n        return 1.0", 5),
    ],
)
def test_what_is_bound_under_a_condition_is_refused_where_it_is_bound(statements: str, line: int) -> None:
    with pytest.raises(UnsupportedSyntax, match="'VALUE' is bound under a condition") as caught:
        stored(HEADER + statements + "\n")
    assert caught.value.location is not None and caught.value.location.line == line
    assert stored(HEADER + statements + "\n", "1.5") == 1.5  # nobody asks


def test_a_kernel_that_is_defined_under_a_condition_is_refused() -> None:
    text = HEADER + "if some():" + KERNEL.format(value=1.0).replace("\n", "\n    ")
    with pytest.raises(UnsupportedSyntax, match="'kernel' is bound under a condition"):
        KernelSource.from_text(text, "kernel")


@pytest.mark.parametrize(
    "imports",
    [
        "from vllm.triton_utils import HAS_TRITON, tl, triton\n",
        "from .utils import triton\nfrom .utils import tl\n",
        "try:\n    import triton\n    import triton.language as tl\nexcept ImportError:\n    triton = tl = None\n",
        "if some():\n    import triton\n    import triton.language as tl\nelse:\n    from stubs import triton, tl\n",
    ],
)
def test_the_language_may_come_from_a_program_or_under_a_condition(imports: str) -> None:
    assert stored(imports, "tl.constexpr(2.5)") == 2.5


def test_functions_of_the_language_are_imported_from_one_of_two_places() -> None:
    text = HEADER + (
        "try:\n    from triton.language.extra.libdevice import rsqrt\n"
        "except ModuleNotFoundError:\n    from triton.language.extra.cuda.libdevice import rsqrt\n"
    )
    source = KernelSource.from_text(text + KERNEL.format(value="rsqrt(tl.load(x))"), "kernel")
    assert "rsqrt" in print_function(lower(source, {"x": "*fp32"}, {}))


@pytest.mark.parametrize(
    "text",
    [
        "from elsewhere import VALUE",
        "def VALUE():\n    return 1.0",
        "async def VALUE():\n    return 1.0",
        "VALUE = tl.constexpr(1.0)\ndel VALUE",
        "VALUE = tl.constexpr(1.0)\nimport VALUE",
        "VALUE = tl.constexpr(1.0)\nfrom elsewhere import VALUE",
        "VALUE = LATER\nLATER = tl.constexpr(1.0)",
    ],
)
def test_what_is_pythons_or_nothing_is_no_name_of_kernels(text: str) -> None:
    with pytest.raises(CompilationError) as caught:
        stored(f"{HEADER}{text}\n")
    assert isinstance(caught.value, UnknownName) and "'VALUE' is not defined" in caught.value.message
