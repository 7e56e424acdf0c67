"""Which functions of the language give floats: what is told without compiling is what a kernel gets."""

from __future__ import annotations

import inspect
import warnings

import pytest

from deuteron.compiler import language
from deuteron.compiler.errors import CompileTimeAssertionFailure, DeuteronError
from deuteron.compiler.frontend import KernelSource, lower
from deuteron.compiler.language import libdevice, results
from deuteron.compiler.language.builtin import is_builtin
from deuteron.compiler.language.inline import LibraryFunction
from deuteron.compiler.language.results import gives_floats

FUNCTIONS = {
    f"{path}.{name}": function
    for path, home in (("tl", language), ("tl.extra.libdevice", libdevice))
    for name in home.__all__
    if is_builtin(function := getattr(home, name)) or isinstance(function, LibraryFunction)
}
KERNEL = """
import deuteron as triton
import deuteron.language as tl


@triton.jit
def k({names}):
    tl.static_assert({call}({names}).dtype.is_floating())
"""


def compiled(call: str, operands: int) -> bool | None:
    """Whether the result of numbers is a float; None where a kernel cannot call it with numbers, or gets no tensor."""
    names = [f"x{number}" for number in range(operands)]
    source = KernelSource.from_text(KERNEL.format(call=call, names=", ".join(names)), "k")
    for type in ("i32", "fp32"):
        try:
            lower(source, dict.fromkeys(names, type), {})
        except CompileTimeAssertionFailure:
            return False
        except DeuteronError:
            continue
        return True
    return None


@pytest.mark.filterwarnings("ignore:tl.where takes an int1")  # of kernels
@pytest.mark.parametrize("name", FUNCTIONS)
def test_kernels_get_the_kind_that_is_told(name: str) -> None:
    """Bessel functions of any order take an integer and a float, which nobody tries."""
    function = FUNCTIONS[name]
    plain = function.function if isinstance(function, LibraryFunction) else function
    operands = sum(p.default is p.empty for p in inspect.signature(plain).parameters.values())
    found = compiled(name, operands)
    assert found is None or gives_floats(function) == found or name.endswith((".jn", ".yn"))


def test_nobody_is_warned_of_what_is_tried() -> None:
    results._tried.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not gives_floats(language.where)


@pytest.mark.parametrize("value", [[1], 2.0, len, pytest.param(print, id="print"), None])
def test_what_is_no_function_of_the_language_gives_nothing(value: object) -> None:
    assert not gives_floats(value)
