"""Texts that nobody vouches for: each is read or refused soon, with an error of ours, whatever it says."""

from __future__ import annotations

import time
import tracemalloc

import pytest

import deuteron as triton
from deuteron.compiler import KernelSource
from deuteron.compiler.errors import CompilationError, UnsupportedSyntax
from deuteron.compiler.frontend.lower import lower
from deuteron.compiler.source.parsing import MAX_NESTING

HEAD = "import triton\nimport triton.language as tl\n"
KERNEL = "@triton.jit\ndef k(p, n):\n"


def identity(text: str, kernel: str = KERNEL) -> str:
    """The hash of the kernel behind ``text``."""
    return KernelSource.from_text(HEAD + text + kernel, "k").hash


def body(line: str) -> str:
    return KERNEL + line


@pytest.mark.parametrize(
    "line",
    [
        "    y = " + " + ".join(["n"] * 400),
        "    y = " + "-" * 400 + "n",
        "    y = n" + ".a" * 400,
        "    y = n" + "[0]" * 400,
        "    y = " + "n if n else " * 400 + "n",
        "    if n: pass\n" + "".join(f"    elif n == {i}: pass\n" for i in range(400)),
    ],
)
def test_nesting_has_an_end(line: str) -> None:
    with pytest.raises(UnsupportedSyntax, match=f"nested more than {MAX_NESTING} levels"):
        identity("", body(line))


def test_text_that_is_no_python_or_too_long() -> None:
    with pytest.raises(UnsupportedSyntax, match="not valid Python"):
        KernelSource.from_text("def kernel(:\n", "kernel")
    for parameters in ("x, x", "x, /, x", "x, *, x", "x, *x", "*x, **x", "y, f=lambda a, a: a"):
        with pytest.raises(UnsupportedSyntax, match="not valid Python: two parameters are called [xa]"):
            KernelSource.from_text(f"@jit\ndef kernel({parameters}):\n    pass\n", "kernel")
    with pytest.raises(UnsupportedSyntax, match="longer than"):
        KernelSource.from_text("#" * 300_000, "kernel")


def test_recursion_and_deep_nesting_end_in_an_error() -> None:
    text = "import triton\n@triton.jit\ndef kernel(x):\n    kernel(x)\n"
    with pytest.raises(UnsupportedSyntax, match="levels deep"):
        lower(KernelSource.from_text(text, "kernel"), {"x": "i32"}, {})
    deep = "import triton\n@triton.jit\ndef kernel(x):\n    y = " + "(" * 5000 + "x" + ")" * 5000
    with pytest.raises(UnsupportedSyntax):
        KernelSource.from_text(deep, "kernel")


def test_calls_that_double_at_every_level_end_in_an_error() -> None:
    levels = "".join(f"@triton.jit\ndef f{i}(x):\n    a = f{i + 1}(x)\n    return f{i + 1}(a)\n" for i in range(40))
    text = f"import triton\n@triton.jit\ndef f40(x):\n    return x\n{levels}@triton.jit\ndef kernel(x):\n    f0(x)\n"
    with pytest.raises(UnsupportedSyntax, match="statements at compile time"):
        lower(KernelSource.from_text(text, "kernel"), {"x": "i32"}, {})


def test_what_python_cannot_parse_has_a_reason() -> None:
    with pytest.raises(UnsupportedSyntax, match="nested too deeply|nested more than"):
        identity("", body("    y = " + "-" * 20_000 + "n"))


def test_nesting_within_the_limit_is_read() -> None:
    assert identity("", body("    y = " + " + ".join(["n"] * (MAX_NESTING - 10))))


def test_an_integer_that_python_cannot_write() -> None:
    with pytest.raises(UnsupportedSyntax, match="more than 4300 digits"):
        identity("", body("    y = 0x" + "f" * 20_000))


def test_constants_by_constants_by_constants() -> None:
    chain = "A2000 = 1\n" + "".join(f"A{i} = A{i + 1} + 1\n" for i in reversed(range(2000)))
    with pytest.raises(UnsupportedSyntax, match="too many other constants"):
        identity(chain, body("    y = A0"))


def test_nested_tuples_do_not_double_for_ever() -> None:
    doubled = "A0 = (1, 2)\n" + "".join(f"A{i} = (A{i - 1}, A{i - 1})\n" for i in range(1, 60))
    with pytest.raises(UnsupportedSyntax, match="longer than 10000"):
        identity(doubled, body("    y = A59"))


def test_many_constants_of_many_values_are_too_much_together() -> None:
    many = "A = (1,) * 9999\n" + "".join(f"A{i} = A\n" for i in range(2000))
    began = time.monotonic()
    with pytest.raises(UnsupportedSyntax, match="characters"):
        identity(many, body("".join(f"    A{i}\n" for i in range(2000))))
    assert time.monotonic() - began < 30


AGGREGATES = "from triton.language.core import _aggregate as aggregate\n@aggregate\nclass A0:\n    x: tl.tensor\n"


@pytest.mark.parametrize("constant", ["0*((1,)*9999" + "*1" * 180 + ")", "+".join(["0*(((1,)*999,)*9)"] * 40)])
def test_operations_on_constants_have_an_end_together(constant: str) -> None:
    """Each of these makes as much as a value may have; a text has room for a hundred thousand of them."""
    names = [f"C{i}" for i in range(40)]
    text = "".join(f"{name} = {constant}\n" for name in names)
    began = time.perf_counter()
    with pytest.raises(UnsupportedSyntax, match="take more than 1000000 elements to make"):
        identity(text, f"@triton.jit\ndef k(p):\n    return {', '.join(names)}\n")
    assert time.perf_counter() - began < 20


def test_aggregates_of_aggregates_do_not_double() -> None:
    levels = "".join(f"@aggregate\nclass A{i}:\n    x: A{i - 1}\n    y: A{i - 1}\n" for i in range(1, 60))
    found = identity(AGGREGATES + levels, body("    y = A59"))
    other = identity(AGGREGATES.replace("tl.tensor", "tl.constexpr") + levels, body("    y = A59"))
    assert found != other, "what is told once is told"


def test_members_are_looked_up_once() -> None:
    holders = "".join(f"class C{i}:\n    W = {i}\n" for i in range(1000))
    lines = "".join(f"    y = C{i}.W + n.a{i}\n" for i in range(1000))
    began = time.monotonic()
    found = identity(holders, body(lines))
    assert time.monotonic() - began < 30, "it was over a minute"
    assert found != identity(holders.replace("W = 7\n", "W = 8\n"), body(lines))


def test_what_is_too_deep_for_the_compiler_is_a_compilation_error() -> None:
    ladder = "    if n == 0:\n        y = 1\n" + "".join(
        f"    elif n == {i}:\n        y = {i}\n" for i in range(1, 190)
    )
    source = KernelSource.from_text(HEAD + body("    y = 0\n" + ladder + "    tl.store(p, y)\n"), "k")
    with pytest.raises(CompilationError, match="nested too deeply"):
        triton.compile(source, {"p": "*i32", "n": "i32"}, {}, target="cpu")


@pytest.mark.parametrize("annotation", ['"1 / 0"', 'tl.constexpr("1 / 0")', "TEXT"])
def test_annotations_of_aggregates_are_never_executed(annotation: str) -> None:
    text = f'TEXT = "1 / 0"\n@aggregate\nclass B(A0):\n    y: {annotation}\n'
    with pytest.raises(UnsupportedSyntax, match="annotated with a string"):
        identity(AGGREGATES + text, body("    y = B"))


@pytest.mark.parametrize("base", ["tl.tensor", "k", "3"])
def test_an_aggregate_inherits_from_aggregates_alone(base: str) -> None:
    with pytest.raises(UnsupportedSyntax, match="the aggregate B"):
        identity(AGGREGATES + f"BASE = {base}\n@aggregate\nclass B(BASE):\n    y: tl.tensor\n", body("    y = B"))


EMPTY = "E = ()\nA = (E,) * 9999\nB = (A,) * 9999\nC = (B,) * 9999\n"


@pytest.mark.parametrize("text", [EMPTY, EMPTY.replace("()", '("",)'), EMPTY.replace("()", "(((),),)")])
def test_elements_that_hold_nothing_count(text: str) -> None:
    with pytest.raises(UnsupportedSyntax, match="longer than 10000"):
        identity(text, body("    y = C"))


def lowered(lines: str, text: str = "") -> None:
    """Compile a kernel of these lines to tile IR."""
    indented = "".join(f"    {line}\n" for line in lines.splitlines())
    source = KernelSource.from_text(HEAD + text + body(indented), "k")
    lower(source, {"p": "*i32", "n": "i32"}, {})


PAIR = AGGREGATES.replace("A0:", "P:").replace("x: tl.tensor", "x: tl.constexpr\n    y: tl.constexpr")
GIVEN = "@triton.jit\ndef given(*values):\n    return values\n"


@pytest.mark.parametrize(
    "line",
    ["x = (x, x)", "x = {0: x, 1: x}", "x = P(x, x)", "x = given(x, x)", "x = tl.aggregate_replace(x, x=x, y=x)"],
)
def test_no_value_doubles_for_ever(line: str) -> None:
    with pytest.raises(UnsupportedSyntax, match="longer than 10000") as caught:
        lowered(f"x = P(n is None, 1)\nfor i in tl.static_range(60):\n    {line}\nif n > 1:\n    x = x", PAIR + GIVEN)
    assert caught.value.location is not None


@pytest.mark.parametrize(
    "line",
    [
        "x = (" + "*t, " * 50_000 + ")",
        "x = given(" + "*t, " * 50_000 + ")",
        "x = [(i,) * 9999 for i in tl.static_range(190000)]",
        "x = f'" + "{s}" * 50_000 + "'",
    ],
)
def test_what_is_too_long_is_not_made_first(line: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(UnsupportedSyntax, match="longer than 10000"):
            lowered(f"t = (1,) * 9999\ns = 'a' * 9999\n{line}", GIVEN)
        assert tracemalloc.get_traced_memory()[1] < 200 << 20, "it is gigabytes"
    finally:
        tracemalloc.stop()


def test_values_inside_each_other_have_an_end() -> None:
    with pytest.raises(UnsupportedSyntax, match="more than 50 levels deep"):
        lowered("x = (n,)\nfor i in tl.static_range(60):\n    x = (x,)")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("x = f'{n is None:" + "9" * 5000 + "}'", "at most 64 wide"),
        ("x = f'{1:²}'", "cannot format 1"),
        ("x = f'{-5:c}'", "cannot format -5"),
        ("x = (1, 2)[::0]", "slice step cannot be zero"),
        ("x = (1, 2)['a':]", "slice indices"),
        ("x = (-8) ** 0.5", "complex"),
        ("for i in tl.static_range(1 << 80):\n    pass", "unrolls at most"),
        ("x = [i for i in range(1 << 80)]", "longer than 10000"),
        ("x = [i for i in tl.static_range(3, 9, 0)]", "a list comprehension over"),
        ("x = [i for i in tl.static_range('a')]", "a list comprehension over"),
    ],
)
def test_operations_that_python_refuses_are_refused_at_their_place(line: str, reason: str) -> None:
    with pytest.raises(CompilationError, match=reason) as caught:
        lowered(line)
    assert caught.value.location is not None


@pytest.mark.parametrize("name", ["__slots__", "__qualname__", "__classcell__", "__module__", "__dict__", "__doc__"])
def test_what_python_reads_of_a_class_is_no_constant(name: str) -> None:
    function = f"    @triton.jit\n    def {name}():\n        pass\n"
    for member in (f"    {name} = ('x', 'y')\n", function):
        assert identity(f"class C:\n{member}    x = 3\n    y = 4\n", body("    y = C.x"))
    with pytest.raises(UnsupportedSyntax, match=f"cannot have a field '{name}'") as caught:
        identity(AGGREGATES + f"@aggregate\nclass B:\n    {name}: tl.constexpr = 3\n", body("    y = B"))
    assert caught.value.source_line == f"    {name}: tl.constexpr = 3"


@pytest.mark.parametrize("name", ["fields", "methods", "properties", "defaults", "initializer"])
def test_fields_with_names_of_the_compiler(name: str) -> None:
    fields = f"@aggregate\nclass B:\n    {name}: tl.constexpr"
    assert identity(f"{AGGREGATES}{fields}\n", body("    y = B"))
    with pytest.raises(UnsupportedSyntax, match=f"the field '{name}' of the aggregate B cannot have a default"):
        identity(f"{AGGREGATES}{fields} = 3\n", body("    y = B"))


@pytest.mark.parametrize(
    "link",
    [
        "class C{0}:\n    X = C{1}.X\n",
        "@aggregate\nclass C{0}:\n    x: C{1}\n",
        "@aggregate\nclass C{0}(C{1}):\n    x: tl.tensor\n",
    ],
)
def test_classes_by_classes_by_classes(link: str) -> None:
    chain = "class C0:\n    X = 1\n" + "".join(link.format(i, i - 1) for i in range(1, 2500))
    with pytest.raises(UnsupportedSyntax, match="'C2499' is defined by too many other constants") as caught:
        identity(AGGREGATES + chain, body("    y = C2499"))
    assert caught.value.source_line is not None and caught.value.source_line.startswith("class C2499")
