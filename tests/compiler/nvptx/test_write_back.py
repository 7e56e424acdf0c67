"""Results of products on their way to memory, and operands on their way to warp groups: what an H200 showed wrong."""

import re

import numpy as np
import pytest

from deuteron.compiler.launch_recipe import Guard

PRODUCT = """
def product(a, b, c, M, N, K, sa, sb, sc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SCALE: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        rk = start + tl.arange(0, BK)
        x = tl.load(a + rm[:, None] * sa + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
        y = tl.load(b + rk[:, None] * sb + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(x * SCALE, y, acc)
    tl.store(c + rm[:, None] * sc + rn[None, :], acc, mask=(rm[:, None] < M) & (rn[None, :] < N))
"""


def sample(
    from_text, columns: str = "i32:16", warps: int = 4, scale: int = 1, block: tuple[int, int, int] = (64, 64, 32)
):
    sizes = {"M": "i32", "N": columns, "K": "i32", "sa": "i32:16", "sb": "i32:16", "sc": "i32:16"}
    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", **sizes}
    return from_text(PRODUCT, signature, dict(zip(("BM", "BN", "BK"), block, strict=True)) | {"SCALE": scale}, warps)


@pytest.mark.parametrize("columns", ["i32:16", "i32"])
def test_the_copy_engine_writes_rows_that_are_whole_chunks(from_text, columns: str) -> None:
    """Four f32 are a chunk: the type says that there are no others, or a guard does."""
    made, guard = sample(from_text, columns), Guard("N", "multiple", 4)
    llvm = made.program().llvm
    assert "bulk_group" in llvm and "cp.async.bulk.tensor.2d.shared::cluster" in llvm
    llvm = made.for_guards(frozenset({guard})).llvm
    assert ("bulk_group" in llvm) == (columns == "i32:16")
    assert "cp.async.bulk.tensor.2d.shared::cluster" in llvm


@pytest.mark.parametrize(("warps", "columns"), [(4, 112), (8, 112), (16, 112), (4, 99), (16, 99)])
def test_every_part_of_a_box_is_written_by_all_groups(from_text, simulated, warps: int, columns: int) -> None:
    """With 16 warps the groups share out rows and columns."""
    rng = np.random.default_rng(7)
    m, k, stride = 120, 40, 128
    a = rng.integers(-3, 4, (m, 48)).astype(np.float16)
    b = rng.integers(-3, 4, (k, stride)).astype(np.float16)
    c = np.full((m, stride), 77, np.float32)
    kind = "i32:16" if columns % 16 == 0 else "i32"
    made = sample(from_text, kind, warps, block=(128, 128, 32))
    simulated(made, (1, 1), [a, b, c, m, columns, k, 48, stride, stride])
    wanted = np.full_like(c, 77)
    wanted[:, :columns] = a[:, :k].astype(np.float32) @ b[:, :columns].astype(np.float32)
    np.testing.assert_array_equal(c, wanted)


def test_operands_are_computed_before_the_fence(from_text) -> None:
    """What LLVM computes behind wgmma.fence an instruction may read too early: nothing can stand between them."""
    for scale in (1, 2):  # 2: computed in registers
        pieces = re.findall(
            r'asm sideeffect "([^"]*wgmma\.mma_async[^"]*)"', sample(from_text, scale=scale).program().llvm
        )
        assert pieces and all(p.startswith("wgmma.fence.sync.aligned;") for p in pieces)
        assert all(("}, {" in p) == (scale == 2) for p in pieces)  # A in registers


SIGNAL = PRODUCT.replace("def product(a, b, c,", "def product(a, b, c, flag,") + "    {signal}\n"


@pytest.mark.parametrize(
    ("signal", "by_engine"),
    [
        ("tl.atomic_add(flag, 1, sem='relaxed')", True),
        ("tl.atomic_xchg(flag, 1, sem='acquire')", True),
        ("tl.atomic_add(flag, 1)", False),
        ("tl.atomic_xchg(flag, 1, sem='release', scope='sys')", False),
        ("tl.atomic_cas(flag, 0, 1)", False),
        (
            "tl.inline_asm_elementwise('st.release.gpu.global.u32 [$1], 1; mov.u32 $0, 1;', '=r,l', [flag], tl.int32,"
            " False, 1)",
            False,
        ),
    ],
)
@pytest.mark.parametrize("persistent", [False, True])
def test_results_that_a_program_announces_are_there(from_text, signal: str, by_engine: bool, persistent: bool) -> None:
    """A copy under way is not in order with what releases: a kernel that waits for the flag would read what was there
    before."""
    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "flag": "*i32:16", "M": "i32", "K": "i32"}
    signature |= dict.fromkeys(("N", "sa", "sb", "sc"), "i32:16")
    constexprs = {"BM": 128, "BN": 128, "BK": 32, "SCALE": 1}
    text = SIGNAL.replace("{signal}", signal)
    llvm = from_text(text, signature, constexprs, 8, persistent=persistent).program().llvm
    assert ("bulk_group" in llvm) == by_engine
    assert "cp.async.bulk.tensor.2d.shared::cluster" in llvm


@pytest.mark.parametrize(
    ("before", "after", "by_engine"),
    [
        ("pass", "pass", True),
        ("acc += tl.load(d + tile, mask=inside, other=0.0)", "pass", True),
        ("acc += tl.load(c + tile, mask=inside, other=0.0)", "pass", False),
        ("pass", "tl.store(d, tl.sum(tl.sum(tl.load(c + tile, mask=inside, other=0.0), 0), 0))", False),
        ("pass", "tl.store(c + tile, acc + 1, mask=inside)", False),
    ],
)
def test_what_is_read_or_written_again_is_stored_by_threads(
    from_text, before: str, after: str, by_engine: bool
) -> None:
    """A copy under way would come too late for a load, and after a store."""
    *lines, store = PRODUCT.replace("def product(a, b, c,", "def product(a, b, c, d,").rstrip().splitlines()
    names = ["tile = rm[:, None] * sc + rn[None, :]", "inside = (rm[:, None] < M) & (rn[None, :] < N)"]
    text = "\n".join([*lines, *(f"    {line}" for line in (*names, before)), store, f"    {after}", ""])
    signature = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp32:16", "d": "*fp32:16", "M": "i32", "K": "i32"}
    signature |= dict.fromkeys(("N", "sa", "sb", "sc"), "i32:16")
    llvm = from_text(text, signature, {"BM": 128, "BN": 128, "BK": 32, "SCALE": 1}, 8).program().llvm
    assert ("bulk_group" in llvm) == by_engine


#: A box at any place, whose neighbours are in neighbouring lanes, written by the copy engine beside a product.
BESIDE = """
def beside(a, b, d, c, e, first, K, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr):
    box = tl.make_tensor_descriptor(a, [M, 3 * N], [3 * N, 1], [M, N]).load([0, first])
    acc = tl.zeros((M, N), tl.float32)
    for start in range(0, K, B):
        k = start + tl.arange(0, B)
        x = tl.load(b + tl.arange(0, M)[:, None] * K + k[None, :])
        acc = tl.dot(x, tl.load(d + k[:, None] * N + tl.arange(0, N)[None, :]), acc)
    tl.store(c + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], box)
    tl.store(e + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], acc)
"""


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize(("shape", "warps"), [((64, 64), 4), ((128, 64), 4), ((64, 128), 4)])
def test_words_are_written_as_matrices(from_text, simulated, dtype: type, shape: tuple[int, int], warps: int) -> None:
    """Each fills one of stmatrix by itself, floats, too."""
    (m, n), depth, first = shape, 64, 7
    rng = np.random.default_rng(m + n)
    a = rng.integers(-99, 99, (m, 3 * n)).astype(dtype)
    b, d = (rng.integers(-3, 4, size).astype(np.float16) for size in ((m, depth), (depth, n)))
    c, e = np.full(shape, 77, dtype), np.full(shape, 77, np.float32)
    kind = "*fp32:16" if dtype is np.float32 else "*i32:16"
    signature = {"a": kind, "b": "*fp16:16", "d": "*fp16:16", "c": kind, "e": "*fp32:16", "first": "i32", "K": "i32:16"}
    made = from_text(BESIDE, signature, {"M": m, "N": n, "B": 32}, warps)
    assert "stmatrix" in made.program().llvm
    simulated(made, (1, 1), [a, b, d, c, e, first, depth])
    np.testing.assert_array_equal(c, a[:, first : first + n])
    np.testing.assert_array_equal(e, b.astype(np.float32) @ d)
