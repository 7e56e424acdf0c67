"""Functions of compile-time values are Python: kernels of a running program call them while they are compiled."""

from __future__ import annotations

import functools
import sys
import types
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler import errors
from deuteron.compiler.source import identity
from deuteron.compiler.source.kernel import KernelSource


@triton.constexpr_function
def squares(n):
    return sum(i * i for i in range(n))


@triton.constexpr_function
def from_a_table(n):
    return {k: k * 2 for k in range(n)}[n - 1]


@triton.constexpr_function
def missing(n):
    try:
        return {}[n]
    except KeyError as error:
        assert error.args == (n,)
        return n + 1


class Tripled:
    def __init__(self, n):
        self.n = n

    def get(self):
        return self.n * 3


@triton.constexpr_function
def by_a_class(n):
    return Tripled(n).get()


@triton.constexpr_function
def named(**given):
    return tuple(given.values())


@triton.constexpr_function
def total(*given):
    return sum(given)


@functools.cache
def fivefold(n):
    return n * 5


@triton.constexpr_function
def by_names(n):
    return named(n=n)[0] + fivefold(n)


@dataclass
class Spec:
    n: int
    names: list[str] = field(default_factory=list)

    @property
    def twice(self):
        return self.n * 2

    def plus(self, more):
        return Spec(self.n + more)


@triton.constexpr_function
def spec(n):
    return Spec(n, ["wide"])


@triton.constexpr_function
def read(given):
    return given.n + 1


@triton.constexpr_function
def size_of(tile):
    return len(tile.shape) * 1000 + sum(int(s) for s in tile.shape)


@triton.constexpr_function
def is_floating(kind):
    return isinstance(kind, tl.dtype) and kind.is_floating() and not isinstance(kind, tl.tensor)


@triton.constexpr_function
def known(table):
    return sorted(table) == ["a", "b"] and isinstance(table, dict) and isinstance(table["a"], tl.tensor)


@triton.constexpr_function
def tables(n):
    return {"sizes": [n, [n + 1]], "inner": {n: "deep"}}


@triton.jit
def plain_python(o_ptr, N: tl.constexpr):
    tl.store(o_ptr, squares(N))
    tl.store(o_ptr + 1, from_a_table(N))
    tl.store(o_ptr + 2, missing(N))
    tl.store(o_ptr + 3, by_a_class(N))
    pair: tl.constexpr = named(a=N, b=8)
    tl.store(o_ptr + 4, pair[0] * pair[1] + total(N, 8))
    tl.store(o_ptr + 5, by_names(N))


@triton.jit
def with_objects(o_ptr, N: tl.constexpr):
    made: tl.constexpr = spec(N)
    tl.store(o_ptr, read(made) + made.n)
    tl.store(o_ptr + 1, made.twice + made.plus(N).n * 100)
    tl.store(o_ptr + 2, len(made.names) + (made.names[0] == "wide"))
    found = tables(N)
    tl.store(o_ptr + 3, found["sizes"][1][0] + len(found["inner"][N]))


@triton.jit
def with_tiles(x_ptr, o_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N)[:, None] * 8 + tl.arange(0, 8)[None, :])
    tl.store(o_ptr, size_of(x))
    tl.store(o_ptr + 1, is_floating(x_ptr.dtype.element_ty) + 2 * is_floating(x.dtype) + 4 * is_floating(N))
    tl.store(o_ptr + 2, known({"a": x, "b": N}) + tl.sum(x).to(tl.int32))


def test_what_the_kernel_language_does_not_have(launch) -> None:
    got = launch(plain_python, (1,), np.zeros(6, np.int32), N=4)[0]
    assert got.tolist() == [14, 6, 5, 12, 44, 24]


def test_objects_of_the_program(launch) -> None:
    assert launch(with_objects, (1,), np.zeros(4, np.int32), N=4)[0].tolist() == [9, 808, 2, 9]


def test_tiles_and_types_are_handed_over(launch) -> None:
    got = launch(with_tiles, (1,), np.ones((4, 8), np.float32), np.zeros(3, np.int32), N=4)[1]
    assert got.tolist() == [2012, 3, 33]


@pytest.mark.parametrize("kernel", [plain_python, with_objects])
def test_ptx_is_made_of_it(kernel) -> None:
    made = triton.compile(kernel, {"o_ptr": "*i32"}, {"N": 4}, target="cuda:90a", stop_after="ptx")
    assert "st.global" in made.asm["ptx"]


@triton.constexpr_function
def failing(n):
    return {"known": 1}[n]


@triton.constexpr_function
def of_elements(x):
    while x > 0:
        x -= 1
    return x


@triton.jit
def unknown(o_ptr, N: tl.constexpr):
    tl.store(o_ptr, failing(N))


@triton.jit
def not_known(o_ptr):
    tl.store(o_ptr, of_elements(tl.load(o_ptr)))


def test_what_python_raises_is_told_where_it_is_called() -> None:
    with pytest.raises(errors.CompilationError, match=r"failing\(\) raised KeyError: 'other'") as caught:
        triton.compile(unknown, {"o_ptr": "*i32"}, {"N": "other"}, target="cpu")
    assert isinstance(caught.value.__cause__, KeyError)
    location = caught.value.location
    assert location is not None and location.file == __file__
    assert str(caught.value).split("\n")[1] == "    tl.store(o_ptr, failing(N))"


def test_elements_are_not_known() -> None:
    with pytest.raises(errors.CompilationError, match="not known at compile time") as caught:
        triton.compile(not_known, {"o_ptr": "*i32"}, target="cpu")
    assert caught.value.location is not None


# -- what a kernel is

MODULE = """
import deuteron as triton
import deuteron.language as tl
import beside

TABLE = {"rate": 2}

class Rate:
    SCALE = 1
    def get(self, n):
        return n * 3

@triton.constexpr_function
def rate(n, more={"by": 0}):
    return Rate().get(n) * Rate.SCALE + TABLE["rate"] + beside.offset(n) + more["by"] + [TABLE for _ in range(1)][0]["rate"]

@triton.jit
def kernel(o_ptr):
    tl.store(o_ptr, rate(4))
"""  # noqa: E501 -- a line of a program
BESIDE = "def offset(n):\n    return n\n"


def imported(folder: Path, text: str = MODULE, beside: str = BESIDE) -> types.ModuleType:
    """What a program of two files is when it is imported, by a process that has seen no other."""
    folder.mkdir()
    identity._named.clear()
    identity._numbers.clear()
    made = []
    for name, content in (("beside", beside), ("program", text)):
        path = folder / f"{name}.py"
        path.write_text(content)
        module = types.ModuleType(name)
        module.__file__ = str(path)
        sys.modules[name] = module
        exec(compile(content, str(path), "exec"), vars(module))  # noqa: S102 -- the texts above
        made.append(module)
    return made[1]


@pytest.fixture
def _modules(monkeypatch) -> None:
    for name in ("beside", "program"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))


CHANGES = [
    (MODULE.replace("n * 3", "n * 4"), BESIDE),
    (MODULE.replace("SCALE = 1", "SCALE = 2"), BESIDE),
    (MODULE.replace('{"rate": 2}', '{"rate": 3}'), BESIDE),
    (MODULE.replace('{"by": 0}', '{"by": 1}'), BESIDE),
    (MODULE, BESIDE.replace("return n", "return -n")),
]


@pytest.mark.usefixtures("_modules")
@pytest.mark.parametrize(("text", "beside"), CHANGES)
def test_what_a_function_reaches_is_part_of_the_kernel(text: str, beside: str, tmp_path: Path) -> None:
    before = imported(tmp_path / "before").kernel.source.hash
    assert imported(tmp_path / "same").kernel.source.hash == before
    assert imported(tmp_path / "after", text, beside).kernel.source.hash != before


@pytest.mark.usefixtures("_modules")
def test_a_table_may_not_change_in_place(tmp_path: Path) -> None:
    program = imported(tmp_path / "program")
    out = np.zeros(1, np.int32)
    program.kernel[(1,)](out)
    assert out[0] == 4 * 3 + 2 + 4 + 2
    program.TABLE["rate"] = 20
    with pytest.raises(errors.KernelMismatch, match="Global variable TABLE has changed"):
        program.kernel[(1,)](out)
    program.TABLE = {"rate": 2}
    program.kernel[(1,)](out)


# -- kernels that are text

TEXT = """
import triton
import triton.language as tl

@triton.constexpr_function
def early(n):
    {body}

@triton.jit
def kernel(o_ptr):
    tl.store(o_ptr, early(1))
"""


@pytest.mark.parametrize(
    "body",
    [
        "return len(open({path!r}, 'w').name)",
        "return __import__('os').mkdir({path!r})",
        "return early.__globals__['__builtins__']['open']({path!r}, 'w')",
        "return tl.load.__globals__['__builtins__']['open']({path!r}, 'w')",
        "return [c for c in ().__class__.__base__.__subclasses__()]",
        "return tl.static_print.__wrapped__",
    ],
)
def test_the_functions_of_a_text_are_never_executed(body: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    source = KernelSource.from_text(TEXT.format(body=body.format(path=str(trace))), "kernel")
    with pytest.raises(errors.CompilationError):
        triton.compile(source, {"o_ptr": "*i32"}, target="cpu")
    assert not trace.exists()


@pytest.mark.parametrize("above", ["@around(open({path!r}, 'w'))", "@(lambda f: open({path!r}, 'w') and f)"])
@pytest.mark.parametrize("body", ["return n + 4", "return (lambda: open({path!r}, 'w'))()", "exec('n = 1')"])
def test_what_decorates_a_function_of_a_text_is_never_executed(
    above: str, body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is anything of a text made into Python's code, to be told apart by."""
    trace = tmp_path / "trace"
    text = TEXT.replace("def early", f"{above}\ndef early").replace("{body}", body).format(path=str(trace))
    monkeypatch.setattr("deuteron.compiler.source.kernel.python_source", lambda function: pytest.fail("it ran"))
    source = KernelSource.from_text(text, "kernel")
    assert len(source.hash) == 64
    with pytest.raises(errors.CompilationError) if body != "return n + 4" else nullcontext():
        triton.compile(source, {"o_ptr": "*i32"}, target="cpu")
    assert not trace.exists()


def test_an_endless_function_of_a_text_is_refused() -> None:
    source = KernelSource.from_text(TEXT.format(body="while n: n += 1"), "kernel")
    with pytest.raises(errors.CompilationError, match="at compile time"):
        triton.compile(source, {"o_ptr": "*i32"}, target="cpu")
