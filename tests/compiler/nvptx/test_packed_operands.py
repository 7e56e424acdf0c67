"""Right operands that are packed, several numbers in a byte or a word: rings bring them, and they are joined."""

from __future__ import annotations

import numpy as np
import pytest

from deuteron.compiler.gpu import lower_to_gpu
from deuteron.compiler.gpu.asynchronous import Deposit, Fetch, RingBuffer, Roles
from deuteron.compiler.gpu.ops import VectorLoad
from deuteron.compiler.ir.core import Function
from deuteron.compiler.launch_recipe import Guard
from deuteron.compiler.targets import Target

KERNEL = """
def packed(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (s + k)[None, :])
        PARTS
        acc = tl.dot(x, w, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc)
"""
#: Two of four bits in a byte along N, eight in a word along N, two in a byte along K.
FORMS = {
    "bytes along N": (
        "i8", "N", 2,
        "h = tl.program_id(1) * (BN // 2) + tl.arange(0, BN // 2)",
        "p = tl.load(b + (s + k)[:, None] * (N // 2) + h[None, :])",
        "lo, hi = ((p << 4).to(tl.int8) >> 4).to(tl.float16), (p >> 4).to(tl.float16)",
        "w = tl.join(lo, hi).reshape(BK, BN)",
    ),
    "words along N": (
        "i32", "N", 8,
        "h = tl.program_id(1) * (BN // 8) + tl.arange(0, BN // 8)",
        "p = tl.load(b + (s + k)[:, None] * (N // 8) + h[None, :])",
        "p = tl.interleave(p, p); p = tl.interleave(p, p); p = tl.interleave(p, p)",
        "w = ((p << (28 - n % 8 * 4)[None, :]) >> 28).to(tl.float16)",
    ),
    "bytes along K": (
        "i8", "K", 2,
        "p = tl.load(b + n[:, None] * (K // 2) + (s // 2 + tl.arange(0, BK // 2))[None, :])",
        "lo, hi = ((p << 4).to(tl.int8) >> 4).to(tl.float16), (p >> 4).to(tl.float16)",
        "w = tl.trans(tl.join(lo, hi).reshape(BN, BK))",
    ),
}  # fmt: skip


def kernel_of(form: str) -> tuple[str, dict[str, str]]:
    dtype, _, _, *parts = FORMS[form]
    signature = {"a": "*fp16:16", "b": f"*{dtype}:16", "c": "*fp32:16", **dict.fromkeys("MNK", "i32:16")}
    return KERNEL.replace("PARTS", "\n        ".join(parts)), signature


def packed(numbers: np.ndarray, count: int) -> np.ndarray:
    """``count`` neighbours of the last axis in one number each, the first in the lowest four bits."""
    groups = numbers.reshape(*numbers.shape[:-1], -1, count) & 15
    whole = sum(groups[..., i].astype(np.uint64) << np.uint64(4 * i) for i in range(count))
    return np.asarray(whole).astype({2: np.uint8, 8: np.uint32}[count]).view({2: np.int8, 8: np.int32}[count])


@pytest.mark.parametrize(("columns", "depth"), [(128, 192), (64, 64), (16, 80)])
@pytest.mark.parametrize(
    ("blocks", "warps"), [((64, 64, 64), 4), ((32, 32, 64), 4), ((64, 64, 16), 4), ((128, 128, 32), 8)]
)
@pytest.mark.parametrize("form", FORMS)
def test_products_of_packed_numbers_are_right(
    from_text, simulated, rng, form: str, blocks: tuple[int, int, int], warps: int, columns: int, depth: int
) -> None:
    """Also with half as many columns as a copy needs: another variant runs then."""
    text, signature = kernel_of(form)
    n, k = -(-columns // blocks[1]) * blocks[1], -(-depth // blocks[2]) * blocks[2]
    made = from_text(text, signature, dict(zip(("BM", "BN", "BK"), blocks, strict=True)), warps=warps)
    a = rng.integers(-4, 5, (blocks[0], k)).astype(np.float16)
    numbers = rng.integers(-8, 8, (k, n))
    along_k, count = FORMS[form][1] == "K", FORMS[form][2]
    b = packed(numbers.T if along_k else numbers, count)
    c = np.full((blocks[0], n), np.nan, np.float32)
    simulated(made, (1, n // blocks[1]), [a, b, c, blocks[0], n, k])
    np.testing.assert_array_equal(c, a.astype(np.float64) @ numbers)


def used(function: Function, kind: type) -> int:
    return sum(isinstance(op, kind) for op in function.walk())


@pytest.mark.parametrize(
    ("form", "multiple"),
    [("bytes along N", Guard("N", "multiple", 32)), ("words along N", Guard("N", "multiple", 32)),
     ("bytes along K", Guard("K", "multiple", 32))],
)  # fmt: skip
def test_the_copy_engine_brings_them_if_rows_begin_where_it_needs(from_text, form: str, multiple: Guard) -> None:
    text, signature = kernel_of(form)
    made = from_text(text, signature, {"BM": 64, "BN": 128, "BK": 64}, warps=4)
    function = made.gpu("cuda:90a")
    assert multiple in function.recipe.guards
    assert used(function, Roles) == 1
    assert used(function, Fetch) == 2
    target = Target.parse("cuda:90a")
    other = lower_to_gpu(made.tile(), target, made.schedule, frozenset({multiple}))
    assert multiple not in other.recipe.guards
    assert used(other, Roles) == 0


@pytest.mark.parametrize("form", FORMS)
def test_they_are_unpacked_under_the_product_before(from_text, form: str) -> None:
    text, signature = kernel_of(form)
    assert used(from_text(text, signature, {"BM": 64, "BN": 128, "BK": 64}, warps=4).gpu("cuda:90a"), Deposit) == 2


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a"])
def test_short_rows_have_a_ring_as_only_threads_read_them(from_text, target: str) -> None:
    text, signature = kernel_of("words along N")
    function = from_text(text, signature, {"BM": 32, "BN": 32, "BK": 64}, warps=4).gpu(target)
    shapes = {op.tile.shape for op in function.walk() if isinstance(op, RingBuffer)}
    assert shapes == {(32, 64), (64, 4)}


SCALED = KERNEL.replace("def packed(a, b, c,", "def packed(a, b, c, f,").replace(
    "PARTS",
    """p = tl.load(b + (s + k)[:, None] * (N // 8) + (tl.program_id(1) * (BN // 8) + tl.arange(0, BN // 8))[None, :])
        p = tl.interleave(p, p); p = tl.interleave(p, p); p = tl.interleave(p, p)
        w = (((p << (28 - n % 8 * 4)[None, :]) >> 28) * tl.load(f + n)[None, :]).to(tl.float16)""",
)


@pytest.mark.parametrize(("factors", "held"), [("fp16", 16), ("fp32", 1)])
def test_threads_read_rows_of_few_registers_by_themselves(from_text, factors: str, held: int) -> None:
    """Sixteen neighbours for each thread: two vectors of f16; of f32 they would be four, in twice the registers."""
    _, signature = kernel_of("words along N")
    made = from_text(SCALED, signature | {"f": f"*{factors}:16"}, {"BM": 32, "BN": 32, "BK": 64}, warps=4)
    rows = [op for op in made.gpu("cuda:90a").walk() if isinstance(op, VectorLoad) and op.result.type.shape == (32,)]
    assert {sum(map(any, row.result.type.layout.register)) for row in rows} == {held.bit_length() - 1}


@pytest.mark.parametrize("columns", [16, 32])
def test_the_copy_engine_brings_no_rows_of_eight_bytes(from_text, simulated, rng, columns: int) -> None:
    *_, unpacked, joined = FORMS["bytes along N"]
    text = KERNEL.replace("packed(a, b, c,", "packed(a, b, c, sb,").replace(
        "PARTS",
        "\n        ".join(
            ["p = tl.load(b + (s + k)[:, None] * sb + tl.arange(0, BN // 2)[None, :])", unpacked, joined]
        ),
    )
    signature = kernel_of("bytes along N")[1] | {"sb": "i32:16"}
    made = from_text(text, signature, {"BM": 64, "BN": columns, "BK": 64}, warps=4)
    a, numbers = rng.integers(-4, 5, (64, 192)).astype(np.float16), rng.integers(-8, 8, (192, columns))
    b = np.full((192, 16), 77, np.int8)
    b[:, : columns // 2] = packed(numbers, 2)
    c = np.full((64, columns), np.nan, np.float32)
    simulated(made, (1,), [a, b, c, 16, 64, columns, 192])
    np.testing.assert_array_equal(c, a.astype(np.float64) @ numbers)


@pytest.mark.parametrize(("count", "depth"), [(4, 16), (8, 16), (8, 32), (8, 64)])
def test_the_copy_engine_fills_no_slot_of_less_than_128_bytes(
    from_text, simulated, rng, count: int, depth: int
) -> None:
    """Slots follow each other, and it wants each aligned to that: (8, 64) alone has eight rows of 16 bytes."""
    parts = [
        "p = tl.load(b + (s // COUNT + tl.arange(0, BK // COUNT))[:, None] * N + n[None, :])",
        *(f"p = tl.join(p, p >> {i}).permute(0, 2, 1).reshape({depth // i}, BN)" for i in (4, 2, 1) if i < count),
        "w = (p & 1).to(tl.float16)",
    ]
    text = KERNEL.replace("PARTS", "\n        ".join(parts)).replace("COUNT", str(count))
    signature = kernel_of("bytes along K")[1]
    made = from_text(text, signature, {"BM": 64, "BN": 16, "BK": depth}, warps=4)
    fetched = [op for op in made.gpu().walk() if isinstance(op, Fetch) and op.ring.type.elem.bits == 8]
    assert {op.descriptor >= 0 for op in fetched} == {depth // count == 8}
    a, bits = rng.integers(-4, 5, (64, 5 * depth)).astype(np.float16), rng.integers(0, 2, (5 * depth, 16))
    b = np.packbits(bits.reshape(-1, count, 16), axis=1, bitorder="little")[:, 0].view(np.int8)
    c = np.full((64, 16), np.nan, np.float32)
    simulated(made, (1, 1), [a, b, c, 64, 16, 5 * depth])
    np.testing.assert_array_equal(c, a.astype(np.float64) @ bits)


@pytest.mark.parametrize("columns", [16, 32])
def test_no_array_has_a_part_of_a_size_that_is_nothing(from_text, simulated, rng, columns: int) -> None:
    """A descriptor has no sizes of 0: there is one from 32 columns on."""
    text = KERNEL.replace("packed(a, b, c,", "packed(a, b, c, sb,").replace("* N + n", "* BN + n")
    text = text.replace(
        "PARTS",
        """h = tl.arange(0, BN // 2)
        p = tl.load(b + (s + k)[:, None] * sb + h[None, :], mask=h[None, :] < N // 32, other=0)
        w = tl.interleave(p, p).to(tl.float16)""",
    )
    signature = kernel_of("bytes along N")[1] | {"sb": "i32:16"}
    made = from_text(text, signature, {"BM": 64, "BN": 64, "BK": 64}, warps=4)
    assert Guard("N", "least", 32) in made.gpu().recipe.guards
    a, b = rng.integers(-4, 5, (64, 128)).astype(np.float16), rng.integers(-8, 8, (128, 32)).astype(np.int8)
    c = np.full((64, 64), np.nan, np.float32)
    simulated(made, (1, 1), [a, b, c, 32, 64, columns, 128])
    there = np.where(np.arange(32) < columns // 32, b, 0).repeat(2, axis=1)
    np.testing.assert_array_equal(c, a.astype(np.float64) @ there)


@pytest.mark.parametrize("columns", [64, 128])
@pytest.mark.parametrize("side", ["left", "right"])
def test_slots_are_released_behind_those_who_compute_with_views_of_them(
    from_text, simulated, rng, side: str, columns: int
) -> None:
    """Interleaved before anybody computes: threads read then. The other operand has rows that begin anywhere, and no
    ring."""
    left = """p = tl.load(a + m[:, None] * (K // 2) + (s // 2 + tl.arange(0, BK // 2))[None, :])
        x = ((tl.interleave(p, p) >> (k % 2 * 4)[None, :]) & 15).to(tl.float16)
        w = tl.load(b + (s + k)[:, None] * N + n[None, :])"""
    right = """p = tl.load(b + (s + k)[:, None] * (N // 2) + tl.arange(0, BN // 2)[None, :])
        w = ((tl.interleave(p, p) >> (n % 2 * 4)[None, :]) & 15).to(tl.float16)"""
    loaded = "x = tl.load(a + m[:, None] * K + (s + k)[None, :])"
    text = KERNEL.replace(f"{loaded}\n        PARTS", left) if side == "left" else KERNEL.replace("PARTS", right)
    signature = kernel_of("bytes along N")[1]
    signature |= {"a": "*i8:16", "b": "*fp16:16", "N": "i32"} if side == "left" else {"K": "i32"}
    made = from_text(text, signature, {"BM": 64, "BN": columns, "BK": 64}, warps=4, persistent=False)
    assert used(made.gpu(), Roles) == 1
    nibbles = rng.integers(0, 16, (64, 320) if side == "left" else (320, columns))
    other = rng.integers(-4, 5, (320, columns) if side == "left" else (64, 320))
    x, w = (nibbles, other) if side == "left" else (other, nibbles)
    c = np.full((64, columns), np.nan, np.float32)
    passed = packed(nibbles, 2), other.astype(np.float16)
    simulated(made, (1, 1), [*(passed if side == "left" else passed[::-1]), c, 64, columns, 320])
    np.testing.assert_array_equal(c, x.astype(np.float64) @ w)


@pytest.mark.parametrize("seen", ["w", "x", "p", "tl.trans(p)"])
def test_what_the_next_iteration_gets_has_no_slot(from_text, simulated, rng, seen: str) -> None:
    """It would be filled again before that."""
    shape = {"w": "BK, BN", "x": "BM, BK", "p": "BK, BN // 2", "tl.trans(p)": "BN // 2, BK"}[seen]
    *_, where, unpacked, joined = FORMS["bytes along N"][3:]
    text = KERNEL.replace("PARTS", "\n        ".join([FORMS["bytes along N"][3], where, unpacked, joined]))
    text = text.replace("w, acc)", f"w, acc)\n        kept = ({seen})").replace("c, M,", "c, d, M,")
    elem = "int8" if "p" in seen else "float16"
    text = text.replace("    for s", f"    kept = tl.zeros(({shape}), tl.{elem})\n    for s")
    rows, inner = shape.split(", ")
    text += f"    tl.store(d + tl.arange(0, {rows})[:, None] * ({inner}) + tl.arange(0, {inner})[None, :], kept)\n"
    signature = kernel_of("bytes along N")[1] | {"d": "*i8:16" if elem == "int8" else "*fp16:16"}
    names = ("a", "b", "c", "d", "M", "N", "K")
    made = from_text(text, {n: signature[n] for n in names}, {"BM": 64, "BN": 64, "BK": 64}, warps=4)
    a, numbers = rng.integers(-4, 5, (64, 192)).astype(np.float16), rng.integers(-8, 8, (192, 64))
    b, c = packed(numbers, 2), np.full((64, 64), np.nan, np.float32)
    kept = {"w": numbers, "x": a.T, "p": b, "tl.trans(p)": b}[seen][-64:]
    kept = kept.T if seen in ("x", "tl.trans(p)") else kept
    d = np.zeros(kept.shape, np.int8 if elem == "int8" else np.float16)
    simulated(made, (1, 1), [a, b, c, d, 64, 64, 192])
    np.testing.assert_array_equal(c, a.astype(np.float64) @ numbers)
    np.testing.assert_array_equal(d, kept)


def test_what_products_read_has_no_ring_of_short_rows(from_text) -> None:
    """Tensor cores read rows of 32 bytes and more."""
    text = KERNEL.replace("PARTS", "w = tl.load(b + (s + k)[:, None] * N + n[None, :])")
    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", **dict.fromkeys("MNK", "i32:16")}
    function = from_text(text, signature, {"BM": 64, "BN": 8, "BK": 64}, warps=4).gpu("cuda:90a")
    assert {op.tile.shape for op in function.walk() if isinstance(op, RingBuffer)} <= {(64, 64)}
