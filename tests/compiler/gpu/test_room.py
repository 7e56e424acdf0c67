"""A product's result that the registers of the warps asked for cannot hold gets more warps."""

from __future__ import annotations

import pytest

from deuteron.compiler.options import Schedule
from deuteron.compiler.runtime.variant.pipeline import build
from deuteron.compiler.runtime.variant.variant import make_variant
from deuteron.compiler.source.kernel import KernelSource
from deuteron.compiler.target import Target
from deuteron.compiler.targets.nvptx import assemble, emit_ptx, lower_to_llvm

PRODUCT = """
def product(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, BK)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BK):
        total += tl.dot(tl.load(a + m * K + (start + k)[None, :]), tl.load(b + (start + k)[:, None] * N + n))
    tl.store(c + m * N + n, total.to(tl.float16))
"""
SIGNATURE = {**dict.fromkeys(("a", "b", "c"), "*fp16:16"), "K": "i32:16"}


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a", "cuda:120"])
@pytest.mark.parametrize(
    "shape, asked, given",
    [((128, 128), 4, 4), ((128, 256), 4, 8), ((256, 128), 2, 8), ((64, 128), 1, 2), ((256, 256), 4, 16),
     ((256, 256), 32, 32), ((64, 64), 1, 1)],
)  # fmt: skip
def test_warps_enough_to_hold_the_result(to_gpu, target, shape, asked, given) -> None:
    made = to_gpu(PRODUCT, SIGNATURE, {"M": shape[0], "N": shape[1], "BK": 32}, asked, target)
    assert made.num_warps == given
    assert made.recipe.threads - 32 * given in (0, 32, 128)  # those that only copy


PLACE = "m * K + (start + k)[None, :]"
MADE = f"tl.maximum(tl.load(a + {PLACE}), 0.0).to(tl.float16)"


@pytest.mark.parametrize(
    ("target", "left", "shape", "asked", "given"),
    [
        ("cuda:90a", MADE, (128, 128), 4, 8),
        ("cuda:90a", f"tl.trans({MADE.replace(PLACE, f'tl.trans({PLACE})')})", (128, 128), 4, 8),
        ("cuda:90a", MADE, (64, 256), 4, 4),
        ("cuda:90a", MADE, (128, 64), 4, 4),
        ("cuda:90a", MADE, (128, 128), 2, 8),
        ("cuda:90a", MADE, (256, 128), 8, 8),
        ("cuda:90", MADE, (128, 128), 4, 4),
        ("cuda:80", MADE, (128, 128), 4, 4),
        ("cuda:90a", f"tl.trans(tl.load(a + tl.trans({PLACE})))", (128, 128), 4, 4),
        ("cuda:90a", "(m + k[None, :] + start).to(tl.float16)", (128, 128), 4, 4),
    ],
)  # fmt: skip
def test_two_groups_make_a_left_operand_in_turns(to_gpu, target, left, shape, asked, given) -> None:
    text = PRODUCT.replace(f"tl.load(a + {PLACE})", left)
    assert to_gpu(text, SIGNATURE, {"M": shape[0], "N": shape[1], "BK": 64}, asked, target).num_warps == given


@pytest.mark.parametrize(("precision", "given"), [("tf32", 8), ("tf32x3", 4), ("ieee", 4)])
def test_products_of_single_warps_have_no_turns(to_gpu, precision: str, given: int) -> None:
    text = PRODUCT.replace(f"tl.load(a + {PLACE})", f"tl.load(a + {PLACE}) * 2").replace(
        "* N + n))", f'* N + n), input_precision="{precision}")'
    )
    signature = SIGNATURE | dict.fromkeys("ab", "*fp32:16")
    assert to_gpu(text, signature, {"M": 128, "N": 128, "BK": 16}, 4, "cuda:90a").num_warps == given


def test_a_number_of_registers_is_taken_at_its_word(to_gpu) -> None:
    made = to_gpu(PRODUCT, SIGNATURE, {"M": 128, "N": 256, "BK": 32}, 4, "cuda:90a", maxnreg=255)
    assert made.num_warps == 4


@pytest.mark.parametrize("asked", ["num_warps", "num_threads"])
def test_what_a_program_was_told_stays_true(asked: str) -> None:
    """It has as many warps as it was told, where its products would get more."""
    header = "import deuteron as triton\nimport deuteron.language as tl\n\n@triton.jit\n"
    told = PRODUCT.lstrip() + f"    tl.store(c + M * N, tl.extra.cuda.{asked}())\n"
    constants = {"M": 128, "N": 256, "BK": 32}
    for text, warps in ((PRODUCT.lstrip(), 8), (told, 4)):
        source = KernelSource.from_text(header + text, "product")
        variant = make_variant(source, SIGNATURE, constants, "cuda:90a", {"num_warps": 4})
        assert build(variant, "gpu").num_warps == warps


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a"])
def test_such_a_result_is_not_spilled(to_gpu, target) -> None:
    machine, schedule = Target.parse(target), Schedule(num_warps=4)
    made = to_gpu(PRODUCT, SIGNATURE, {"M": 128, "N": 256, "BK": 32}, 4, target)
    program = lower_to_llvm(made, machine, schedule)
    assert assemble(emit_ptx(program, machine), machine, schedule).spill_bytes == 0


TWO_PRODUCTS = """
def two(a, b, c, d, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, BK)
    first = tl.zeros((M, N), tl.float32)
    second = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + m * K + (start + k)[None, :])
        first += tl.dot(x, tl.load(b + (start + k)[:, None] * N + n))
        second += tl.dot(x, tl.load(c + (start + k)[:, None] * N + n))
    tl.store(d + m * N + n, (first * second).to(tl.float16))
"""


@pytest.mark.parametrize("shape, given", [((64, 128), 4), ((128, 128), 8), ((128, 256), 16)])
def test_results_that_a_loop_carries_side_by_side_are_held_together(to_gpu, shape, given) -> None:
    signature = {**dict.fromkeys(("a", "b", "c", "d"), "*fp16:16"), "K": "i32:16"}
    made = to_gpu(TWO_PRODUCTS, signature, {"M": shape[0], "N": shape[1], "BK": 32}, 4, "cuda:90a")
    assert made.num_warps == given


BATCH = """
def batch(a, b, c, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, SUM: tl.constexpr):
    i, m, n = tl.arange(0, B)[:, None, None], tl.arange(0, M)[None, :, None], tl.arange(0, N)[None, None, :]
    x = tl.load(a + (i * M + m) * K + tl.arange(0, K)[None, None, :])
    y = tl.load(b + (i * K + tl.arange(0, K)[None, :, None]) * N + n)
    products = tl.dot(x, y)
    if SUM:
        tl.store(c + m * N + n, tl.sum(products, 0)[None])
    else:
        tl.store(c + (i * M + m) * N + n, products)
"""


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a"])
@pytest.mark.parametrize(
    "shape, asked, given",
    [((4, 64, 64, 64), 1, 4), ((2, 64, 64, 64), 1, 2), ((2, 32, 64, 64), 1, 1), ((4, 64, 128, 32), 2, 4),
     ((4, 128, 64, 32), 4, 4), ((8, 128, 64, 32), 4, 8)],
)  # fmt: skip
def test_what_is_stored_of_a_batch_is_held_together(to_gpu, target, shape, asked, given) -> None:
    constants = {**dict(zip("BMNK", shape, strict=True)), "SUM": False}
    signature = {**dict.fromkeys("ab", "*bf16:16"), "c": "*fp32:16"}
    assert to_gpu(BATCH, signature, constants, asked, target).num_warps == given
    # Of a sum over the batch each product is added when it is there.
    assert to_gpu(BATCH, signature, {**constants, "SUM": True}, asked, target).num_warps == asked
    assert to_gpu(BATCH, signature, constants, asked, target, maxnreg=255).num_warps == asked
