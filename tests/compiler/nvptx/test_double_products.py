"""Products of f64 on tensor cores, on the simulator: fragments of all shapes, along either axis, from rings and from
registers."""

from __future__ import annotations

import numpy as np
import pytest

from deuteron.compiler.gpu.asynchronous import Fetch, FetchTile, Slot
from deuteron.compiler.gpu.ops import ConvertLayout, Mma
from deuteron.compiler.tile.matmul import Dot

LOOP = """
def products(a, b, c, R, S, K, sam, sak, sbk, sbn, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, P: tl.constexpr):
    m, n = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N)
    out = c + m[:, None] * S + n[None, :]
    inside = (m[:, None] < R) & (n[None, :] < S)
    acc = {start}
    for i in range(0, tl.cdiv(K, BK)):
        k = i * BK + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * sam + k[None, :] * sak, mask=(m[:, None] < R) & (k[None, :] < K), other=0.0)
        y = tl.load(b + k[:, None] * sbk + n[None, :] * sbn, mask=(k[:, None] < K) & (n[None, :] < S), other=0.0)
        {sum} tl.dot({x}, {y}{acc}, input_precision=P)
    tl.store(out, acc, mask=inside)
"""
STARTS = ("tl.zeros((M, N), tl.float64)", "tl.load(out, mask=inside, other=0.0)")
TARGETS = ("cuda:80", "cuda:90a", "cuda:120")


def kernel(start: str = STARTS[0], *, passed: bool = True, x: str = "x", y: str = "y") -> str:
    into = {"sum": "acc =", "acc": ", acc"} if passed else {"sum": "acc +=", "acc": ""}
    return LOOP.format(start=start, x=x, y=y, **into)


def integers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Of 23 bits: products have more than a f32 holds, and sums of some hundreds of them are exact."""
    return rng.integers(-(1 << 22), 1 << 22, shape).astype(np.float64)


def typed(value: int) -> str:
    return "i32:1" if value == 1 else "i32:16" if value % 16 == 0 else "i32"


def draw(seed: int) -> dict:
    rng = np.random.default_rng(seed)
    m, n = (int(size) for size in rng.choice([8, 16, 16, 32], 2))
    return {
        "m": m, "n": n, "bk": int(rng.choice([4, 8, 16, 32])), "warps": int(rng.choice([1, 2, 4, 8])),
        "rows": m * 2 - int(rng.integers(0, m)) * rng.choice([0, 1]), "depth": int(rng.choice([0, 3, 16, 33, 48])),
        "columns": n * 2 - int(rng.integers(0, n)) * rng.choice([0, 1]), "across": rng.choice([False, True], 2),
        "start": rng.choice(STARTS), "passed": bool(rng.choice([False, True])), "stages": int(rng.integers(1, 5)),
        "precision": rng.choice(["ieee", "tf32", "tf32x3"]), "twice": rng.random() < 0.3,
        "views": rng.choice([False, True], 2),
    }  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(16))
def test_random_products_are_exact(from_text, run_function, seed: int, target: str) -> None:
    """Of integers, whichever the order of their sums."""
    case, rng = draw(seed), np.random.default_rng(seed)
    rows, columns, depth = int(case["rows"]), int(case["columns"]), case["depth"]
    a, b, c = integers(rng, rows, depth), integers(rng, depth, columns), integers(rng, rows, columns)
    lying = [np.ascontiguousarray(x.T if across else x) for x, across in zip((a, b), case["across"], strict=True)]
    sam, sak = (1, rows) if case["across"][0] else (max(depth, 1), 1)
    sbk, sbn = (1, max(depth, 1)) if case["across"][1] else (columns, 1)
    x, y = ("x * 2" if case["twice"] else "x"), "y"
    x, y = (f"tl.trans(tl.trans({v}))" if view else v for v, view in zip((x, y), case["views"], strict=True))
    numbers = {"R": rows, "S": columns, "K": depth, "sam": sam, "sak": sak, "sbk": sbk, "sbn": sbn}
    signature = dict.fromkeys("abc", "*fp64:16") | {name: typed(value) for name, value in numbers.items()}
    sizes = {"M": case["m"], "N": case["n"], "BK": case["bk"], "P": str(case["precision"])}
    made = from_text(kernel(case["start"], passed=case["passed"], x=x, y=y), signature, sizes)
    wanted = (2 if case["twice"] else 1) * (a @ b) + (c if case["start"] == STARTS[1] else 0)
    grid = (-(-rows // case["m"]), -(-columns // case["n"]))
    passed = [*lying, c, *(v for v in numbers.values() if v != 1)]
    program = run_function(made.tile(), grid, passed, case["warps"], target, case["stages"])
    np.testing.assert_array_equal(c, wanted)
    assert "mma.sync" in program.llvm


SMALL = """
def small(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    tl.store(c + m[:, None] * N + n[None, :], tl.dot(x, y))
"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "shape", [(1, 8, 16), (4, 32, 16), (16, 4, 8), (32, 1, 16), (16, 16, 2), (16, 8, 1), (2, 2, 2)]
)
def test_tiles_smaller_than_the_instruction_are_multiplied_and_added(from_text, run_function, shape, target) -> None:
    made = from_text(SMALL, dict.fromkeys("abc", "*fp64:16"), dict(zip("MNK", shape, strict=True)))
    m, n, k = shape
    rng = np.random.default_rng(k)
    a, b, c = integers(rng, m, k), integers(rng, k, n), np.full((m, n), np.nan)
    program = run_function(made.tile(), (1,), [a, b, c], 4, target)
    np.testing.assert_array_equal(c, a @ b)
    assert "mma.sync" not in program.llvm


@pytest.mark.parametrize(
    ("target", "shape", "instruction"),
    [
        ("cuda:80", (64, 64, 16), "m8n8k4"),
        ("cuda:89", (8, 8, 4), "m8n8k4"),
        ("cuda:90", (16, 8, 4), "m16n8k4"),
        ("cuda:90a", (16, 16, 8), "m16n8k8"),
        ("cuda:90a", (8, 16, 16), "m8n8k4"),
        ("cuda:100", (32, 8, 64), "m16n8k16"),
        ("cuda:120", (64, 64, 16), "m16n8k16"),
    ],
)
def test_instructions(from_text, check_ptx, target: str, shape: tuple[int, int, int], instruction: str) -> None:
    """Those that the assembler takes for the architecture, the largest that fits the tile."""
    made = from_text(SMALL, dict.fromkeys("abc", "*fp64:16"), dict(zip("MNK", shape, strict=True)), 2)
    assert f"mma.sync.aligned.{instruction}.row.col.f64.f64.f64.f64" in check_ptx(made, target)


def test_sums_are_as_exact_as_those_of_f64(from_text, run_function) -> None:
    rng = np.random.default_rng(5)
    m, n, k = 32, 32, 64
    made = from_text(SMALL, dict.fromkeys("abc", "*fp64:16"), {"M": m, "N": n, "K": k})
    a, b, c = rng.standard_normal((m, k)), rng.standard_normal((k, n)), np.full((m, n), np.nan)
    run_function(made.tile(), (1,), [a, b, c])
    exact = a.astype(np.longdouble) @ b.astype(np.longdouble)
    assert (np.abs(c - exact) <= k * np.finfo(np.float64).eps * (np.abs(a) @ np.abs(b))).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("across", [(False, False), (False, True), (True, False), (True, True)])
def test_operands_come_ahead_through_rings(from_text, target: str, across: tuple[bool, bool]) -> None:
    signature = dict.fromkeys("abc", "*fp64:16") | dict.fromkeys("RSK", "i32:16")
    signature |= dict(zip(("sam", "sak"), ("i32:1", "i32:16") if across[0] else ("i32:16", "i32:1"), strict=True))
    signature |= dict(zip(("sbk", "sbn"), ("i32:1", "i32:16") if across[1] else ("i32:16", "i32:1"), strict=True))
    made = from_text(kernel(), signature, {"M": 64, "N": 64, "BK": 16, "P": "ieee"})
    ops = list(made.gpu(target).walk())
    (product,) = [op for op in ops if isinstance(op, Mma)]
    assert not any(isinstance(op, Dot) for op in ops)
    for operand in (product.a, product.b):
        assert isinstance(operand.op, ConvertLayout)
        assert operand.op.x.type.shared is not None
    assert sum(isinstance(op, Slot) for op in ops) == 2
    assert any(isinstance(op, Fetch | FetchTile) for op in ops)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("tile", "warps"), [((64, 64), 4), ((128, 64), 4), ((128, 64), 8), ((128, 128), 8)])
def test_large_tiles_stay_in_registers(from_text, check_ptx, target: str, tile: tuple[int, int], warps: int) -> None:
    signature = dict.fromkeys("abc", "*fp64:16") | dict.fromkeys(["R", "S", "K", "sam", "sbk"], "i32:16")
    signature |= dict.fromkeys(("sak", "sbn"), "i32:1")
    sizes = {"M": tile[0], "N": tile[1], "BK": 16, "P": "ieee"}
    check_ptx(from_text(kernel(), signature, sizes, warps), target)
