"""What is inferred from a kernel's text: types of arguments and values of constexprs."""

from __future__ import annotations

import pytest

from deuteron.cli.assumed import assume_for
from deuteron.compiler.errors import SignatureError
from deuteron.compiler.source.assume import assume
from deuteron.compiler.source.kernel import KernelSource
from deuteron.compiler.source.usage import usage_of

HEAD = "import deuteron as triton\nimport deuteron.language as tl\n\n"


def source(text: str, name: str = "k") -> KernelSource:
    return KernelSource.from_text(HEAD + text, name)


def kernel(parameters: str, body: str, decorator: str = "@triton.jit") -> KernelSource:
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return source(f"{decorator}\ndef k({parameters}):\n{lines}\n")


def signature(parameters: str, body: str, **options: str) -> dict[str, str]:
    return dict(assume(kernel(parameters, body), **options).signature)  # type: ignore[arg-type]


def constexprs(parameters: str, body: str, decorator: str = "@triton.jit") -> dict[str, object]:
    return dict(assume(kernel(parameters, body, decorator)).constexprs)


def test_pointers_are_found_by_use_not_by_name():
    found = signature(
        "X, n, out, B: tl.constexpr",
        """
        offs = tl.program_id(0) * B + tl.arange(0, B)
        X += 4
        row = X + offs
        tl.store(out + offs, tl.load(row, mask=offs < n), mask=offs < n)
        """.replace("        ", ""),
    )
    assert found == {"X": "*f32:16", "n": "i32:16", "out": "*f32:16"}


def test_strides_and_offsets_of_an_address_are_integers():
    found = signature(
        "base, stride, start, x",
        "p = base + start + tl.program_id(0) * stride\ntl.store(p, x * 2.0)",
    )
    assert found == {"base": "*f32:16", "stride": "i32:16", "start": "i32:16", "x": "f32"}


def test_the_one_called_pointer_wins_among_summands():
    found = signature("start, x_ptr", "tl.store(start + x_ptr, 1.0)")
    assert found == {"start": "i32:16", "x_ptr": "*f32:16"}


def test_what_is_loaded_to_compute_an_address_is_an_index():
    found = signature(
        "table, rows, y, stride",
        "r = tl.load(rows + tl.program_id(0))\ntl.store(y, tl.load(table + r * stride))",
    )
    assert found["rows"] == "*i32:16"
    assert found["table"] == "*f32:16"
    assert found["y"] == "*f32:16"


def test_scalars_that_meet_real_numbers_are_real():
    found = signature(
        "x_ptr, factor, n, eps, count",
        "x = tl.load(x_ptr + n)\ny = x * factor + 1.0\ntl.store(x_ptr, y / count)\nfor i in range(count):\n    pass",
    )
    assert found == {
        "x_ptr": "*f32:16",
        "factor": "f32",
        "n": "i32:16",
        "eps": "f32",
        "count": "i32:16",
    }


@pytest.mark.parametrize(
    ("expression", "type"),
    [
        *((f"tl.{name}(i)", "f32") for name in ("exp", "sin", "cos", "erf", "sigmoid", "rsqrt")),
        *((f"i.{name}()", "f32") for name in ("sin", "sigmoid")),
        *((expression, "f32") for expression in ("tl.rand(7, i)", "tl.math.exp2(i)", "tl.fdiv(i, 3)")),
        ("tl.extra.libdevice.sinh(i)", "f32"),
        *((expression, "i32:16") for expression in ("tl.abs(i)", "i.abs()", "tl.randint(7, i)", "tl.umulhi(i, i)")),
        ("sin(i)", "i32:16"),
    ],
)
def test_scalars_that_meet_results_of_functions_have_their_kind(expression: str, type: str) -> None:
    """``sin`` by itself is some other function. The language says what is a float: a list knew exp and not sin."""
    body = f"i = tl.arange(0, 16)\ny = {expression}\ntl.store(o + i, y * s)"
    assert signature("o, s", body)["s"] == type


def test_pointers_of_called_functions():
    text = """\
@triton.jit
def fetch(where, at):
    return tl.load(where + at)


@triton.jit
def k(a, i, b):
    tl.store(b, fetch(a, i))
"""
    found = assume(source(text)).signature
    assert found == {"a": "*f32:16", "i": "i32:16", "b": "*f32:16"}


def test_annotations_say_the_type():
    found = signature('p: "*bf16", n: tl.int64, s: float', "tl.store(p + n, 1.0 + s)")
    assert found["p"] == "*bf16"
    assert found["n"] == "i64"
    assert found["s"] == "f32"


def test_arrays_are_row_major():
    """The last of an array's strides is 1; one name for several arrays says nothing."""
    names = "a, stride_am, stride_ak, x_stride_0, x_stride_1, x_stride_2, stride_m, stride_n, row_stride"
    found = signature(names, "tl.store(a + " + " + ".join(names.split(", ")[1:]) + ", 1.0)")
    assert [name for name, type in found.items() if type == "i32:1"] == ["stride_ak", "x_stride_2"]
    assert (
        signature(names, f"tl.store(a + {names.split(', ')[2]}, 1.0)", signature={"stride_ak": "i64"})["stride_ak"]
        == "i64"
    )


def test_loaded_and_stored():
    usage = usage_of(
        kernel(
            "a, b, c, d",
            "tl.store(b, tl.load(a))\ntl.store(c, tl.load(c) + 1)\ntl.atomic_add(d, 1)",
        )
    )
    assert usage.loaded == {"a", "c", "d"}
    assert usage.stored == {"b", "c", "d"}


def test_block_pointers_and_descriptors():
    usage = usage_of(
        kernel(
            "a, b, c, d, T, s, i, j, BLOCK: tl.constexpr",
            """
            p = tl.make_block_ptr(a + i * s, (T, 64), (s, 1), (0, 0), block_shape=(BLOCK, 64), order=(1, 0))
            p = p.advance((j, 0))
            q = tl.make_tensor_descriptor(b, [T, 64], [s, 1], [BLOCK, 64])
            q.store([0, 0], tl.load(p, boundary_check=(0,)))
            d.store([0, 0], tl.load_tensor_descriptor(c, [i, 0]))
            """.replace(" " * 12, ""),
        )
    )
    assert usage.loaded == {"a", "c"}
    assert usage.stored == {"b", "d"}
    assert usage.pointers == {"a", "b", "c", "d"}
    assert usage.descriptors == {"c", "d"}
    assert usage.integers >= {"T", "s", "i", "j"}
    assert usage.sizes == {"BLOCK"}


def test_the_block_of_a_host_descriptor_cannot_be_guessed():
    with pytest.raises(SignatureError, match="block shape of the tensor descriptor 'd'") as error:
        signature("d, x", "tl.store(x, tl.sum(d.load([0])))")
    assert "tensordesc<" in (error.value.hint or "")


def test_block_sizes_by_number_of_dimensions():
    one = constexprs("x, BLOCK: tl.constexpr", "tl.store(x + tl.arange(0, BLOCK), 1.0)")
    assert one == {"BLOCK": 1024}
    two = constexprs("x, BLOCK_M: tl.constexpr, COLS: tl.constexpr", "t = tl.zeros((BLOCK_M, COLS), tl.float32)")
    assert two == {"BLOCK_M": 64, "COLS": 64}
    dot = constexprs(
        "x, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr",
        "tl.dot(tl.zeros((BLOCK_M, BLOCK_K), tl.float32), tl.zeros((BLOCK_K, BLOCK_M), tl.float32))",
    )
    assert dot == {"BLOCK_M": 64, "BLOCK_K": 32, "GROUP_M": 8}


def test_flags_texts_dtypes_and_precisions():
    from deuteron.compiler.ir.types import SCALARS

    found = constexprs(
        "x, EVEN: tl.constexpr, ACT: tl.constexpr, T: tl.constexpr, P: tl.constexpr, S: tl.constexpr = 3",
        """
v = tl.load(x).to(T)
if EVEN:
    v += 1
if ACT == "relu":
    v += 2
tl.dot(v, v, input_precision=P)
""",
    )
    assert found == {"EVEN": True, "ACT": "", "T": SCALARS["f32"], "P": "ieee"}


def test_precisions_of_called_functions():
    """P was 1."""
    text = """
@triton.jit
def multiply(v, P: tl.constexpr):
    return tl.dot(v, v, input_precision=P)


@triton.jit
def k(x, P: tl.constexpr):
    i = tl.arange(0, 16)
    at = x + i[:, None] * 16 + i[None, :]
    tl.store(at, multiply(tl.load(at), P))
"""
    assert assume(source(text)).constexprs == {"P": "ieee"}


CONFIGS = """@triton.autotune(
    configs=[
        triton.Config({"B": computed()}),
        triton.Config({"B": 128}, num_warps=8, num_stages=4),
        triton.Config({"B": 256}, num_warps=4),
    ],
    key=["n"],
)
@triton.jit"""


def test_the_first_literal_config_gives_values_and_schedule():
    found = assume(kernel("x, B: tl.constexpr", "tl.store(x + tl.arange(0, B), 1.0)", CONFIGS))
    assert found.constexprs == {"B": 128}
    assert found.schedule == {"num_warps": 8, "num_stages": 4}
    assert found.assumed["num_warps"] == "8"


def test_what_is_given_is_not_assumed():
    found = assume(
        kernel("x, B: tl.constexpr", "tl.store(x + tl.arange(0, B), 1.0)", CONFIGS),
        signature={"x": "*f16"},
        constexprs={"B": 64},
        schedule={"num_warps": 2},
    )
    assert found.signature == {"x": "*f16"}
    assert found.constexprs == {"B": 64}
    assert found.schedule == {"num_warps": 2, "num_stages": 4}
    assert set(found.assumed) == {"num_stages"}


@pytest.mark.parametrize("recursive", ["k(x)", "k(x + 1)"])
def test_recursion_in_the_text_ends(recursive: str):
    assert assume(kernel("x", f"tl.store(x, 1.0)\n{recursive}")).signature == {"x": "*f32:16"}


def test_how_many_arguments_there_are_has_to_be_said():
    with pytest.raises(SignatureError, match=r"how many arguments k has in \*rest") as caught:
        assume(kernel("x, *rest", "tl.store(x, rest[0])"))
    assert '"rest.0=*f32:16"' in str(caught.value.hint)
    given = {"rest.0": "f32", "rest.1.0": "i32"}
    assert assume(kernel("x, *rest", "tl.store(x, rest[0])"), signature=given).signature == {"x": "*f32:16", **given}
    assert assume(kernel("x, *rest", "tl.store(x, 1)"), constexprs={"rest": ()}).constexprs == {"rest": ()}


def test_rows_of_descriptors_are_accesses() -> None:
    """A tile's gather is none."""
    usage = usage_of(
        KernelSource.from_text(
            """
import triton
import triton.language as tl

@triton.jit
def kernel(a, b, rows, c, column, N):
    d = tl.make_tensor_descriptor(b, [N, 64], [64, 1], [1, 16])
    numbers = tl.load(rows + tl.arange(0, 16))
    d.scatter(a.gather(numbers, column), numbers, 0)
    tile = tl.load(c + tl.arange(0, 16))
    tile.gather(numbers, 0)
""",
            "kernel",
        )
    )
    assert (usage.loaded, usage.stored) == ({"a", "rows", "c"}, {"b"})
    assert usage.descriptors == {"a"} and usage.integer_pointers == {"rows"}
    assert "column" in usage.integers


ROWS = """\
@triton.jit
def k(x, y, n, GROUP: tl.constexpr, {parameters}):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, GROUP)
    at = rows[:, None] * n + i[None, :]
    tl.store(y + at, tl.load(x + at, mask=i[None, :] < n), mask=i[None, :] < n)
"""


@pytest.mark.parametrize(
    ("parameters", "given", "found"),
    [
        ("ROWS: tl.constexpr", {}, {"GROUP": 8, "ROWS": 1024}),
        ("ROWS: tl.constexpr", {"GROUP": 8}, {"ROWS": 1024}),
        ("ROWS: tl.constexpr", {"GROUP": 128}, {"ROWS": 64}),
        ("ROWS: tl.constexpr", {"GROUP": 4096}, {"ROWS": 2}),
        ("ROWS: tl.constexpr", {"GROUP": 16384}, {"ROWS": 1}),  # no more can be done
        ("ROWS: tl.constexpr", {"GROUP": 1 << 19}, {"ROWS": 1}),  # beside 1024 of them no tile at all
        ("ROWS: tl.constexpr", {"GROUP": 128, "ROWS": 1024}, {}),
        ("ROWS: tl.constexpr = 512", {"GROUP": 128}, {}),
        ("ROWS: tl.constexpr, BLOCK: tl.constexpr", {"GROUP": 1024}, {"ROWS": 8, "BLOCK": 64}),  # the latter sizes none
    ],
)
def test_blocks_are_assumed_beside_those_that_are_given(
    parameters: str, given: dict[str, object], found: dict[str, object]
) -> None:
    made = assume_for(
        source(ROWS.format(parameters=parameters)),
        "cuda:90a",
        signature={},
        constexprs=given,
        schedule={},
        dtype="f32",
    )
    assert made.constexprs == {**given, **found}
    assert {name: text for name, text in made.assumed.items() if name.isupper()} == {
        n: str(s) for n, s in found.items()
    }


def test_what_is_wrong_with_a_kernel_does_not_change_what_is_assumed() -> None:
    wrong = kernel("x, B: tl.constexpr", "tl.store(x + tl.arange(0, B), tl.nothing)")
    made = assume_for(wrong, "cpu", signature={}, constexprs={}, schedule={}, dtype="f32")
    assert made == assume(wrong)


def test_blocks_of_the_kernels_own_configurations_stay() -> None:
    listed = "@triton.autotune([triton.Config({'B': 32768})], key=[])\n@triton.jit"
    large = kernel("x, B: tl.constexpr", "tl.store(x + tl.arange(0, B), 1.0)", listed)
    made = assume_for(large, "cpu", signature={}, constexprs={}, schedule={}, dtype="f32")
    assert made.constexprs == {"B": 32768}
