"""Products without tensor cores: read in rings, in scratch, along either axis, of every type that has them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from deuteron.compiler.gpu.asynchronous import SharedView, Slot
from deuteron.compiler.gpu.ops import ConvertLayout
from deuteron.compiler.tile.matmul import Dot

LOOP = """
def products(a, b, c, K, sam, sak, sbk, sbn, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    acc = tl.zeros((M, N), {acc})
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * sam + k[None, :] * sak)
        y = tl.load(b + k[:, None] * sbk + n[None, :] * sbn)
        acc = tl.dot({x}, {y}, acc, input_precision="ieee", out_dtype={acc})
    tl.store(c + m[:, None] * N + n[None, :], acc)
"""
TYPES = {
    "fp32": (np.float32, "tl.float32"),
    "fp64": (np.float64, "tl.float64"),
    "fp16": (np.float16, "tl.float32"),
    "bf16": (ml_dtypes.bfloat16, "tl.float32"),
    "i8": (np.int8, "tl.int32"),
}
SEEDS = range(20)


def draw(seed: int) -> dict:
    rng = np.random.default_rng(seed)
    kind = rng.choice(["fp32", "fp32", "fp32", "fp64", "fp16", "bf16", "i8"])
    rows = {"fp32": [1, 4, 8, 16, 32, 64], "fp64": [1, 2, 4]}.get(kind, [1, 2, 4, 8])  # too few for tensor cores
    m = int(rng.choice(rows))
    n, bk = (int(rng.choice(sizes)) for sizes in ([1, 4, 8, 16, 32, 64], [1, 2, 8, 16, 32, 64]))
    return {
        "kind": kind, "m": m, "n": n, "bk": bk, "steps": int(rng.integers(0, 4)), "warps": int(rng.choice([1, 2, 4])),
        "across": rng.choice([False, True], 2), "views": rng.choice([False, True], 2), "twice": rng.random() < 0.5,
    }  # fmt: skip


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a"])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_products(from_text, run_function, seed: int, target: str) -> None:
    case = draw(seed)
    dtype, acc = TYPES[case["kind"]]
    m, n, depth = case["m"], case["n"], case["bk"] * case["steps"]
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((m, depth), (depth, n)))
    # Integers are small enough for sums to be exact; the layout in memory is that of the transposed array or its own.
    lying = [np.ascontiguousarray(x.T if across else x) for x, across in zip((a, b), case["across"], strict=True)]
    sam, sak = (1, m) if case["across"][0] else (max(depth, 1), 1)
    sbk, sbn = (1, max(depth, 1)) if case["across"][1] else (n, 1)
    x, y = ("x * 2" if case["twice"] else "x"), "y"
    x, y = (f"tl.trans(tl.trans({v}))" if view else v for v, view in zip((x, y), case["views"], strict=True))
    pointers = {"a": f"*{case['kind']}:16", "b": f"*{case['kind']}:16", "c": f"*{acc[3:].replace('float', 'fp')}:16"}
    pointers["c"] = pointers["c"].replace("int32", "i32")
    numbers = {"K": depth, "sam": sam, "sak": sak, "sbk": sbk, "sbn": sbn}
    signature = pointers | {name: specialised(value) for name, value in numbers.items()}
    sizes = {"M": m, "N": n, "BK": case["bk"]}
    made = from_text(LOOP.format(acc=acc, x=x, y=y), signature, sizes)
    c = np.full((m, n), 77, np.dtype(acc[3:]))
    run_function(made.tile(), (1,), [*lying, c, *(v for v in numbers.values() if v != 1)], case["warps"], target)
    factor = 2 if case["twice"] else 1
    np.testing.assert_array_equal(c, factor * (a.astype(np.float64) @ b.astype(np.float64)))


@pytest.mark.parametrize("rows", [1, 2, 4, 8])
@pytest.mark.parametrize("kind", ["fp32", "fp16", "i8"])
def test_slots_of_few_rows(from_text, run_function, kind: str, rows: int) -> None:
    """The copy engine swizzles by the bits of addresses, so slots and panels of less than eight rows are not for it."""
    dtype, acc = TYPES[kind]
    signature = {"a": f"*{kind}:16", "b": f"*{kind}:16", "c": "*i32:16" if kind == "i8" else "*fp32:16", "K": "i32:16"}
    signature |= {"sam": "i32:16", "sak": "i32:1", "sbk": "i32:16", "sbn": "i32:1"}
    for depth in (2, 32):
        made = from_text(LOOP.format(acc=acc, x="x", y="y"), signature, {"M": rows, "N": 64, "BK": depth})
        rng = np.random.default_rng(depth)
        a, b = (rng.integers(-4, 5, shape).astype(dtype) for shape in ((rows, 4 * depth), (4 * depth, 64)))
        lying = np.zeros((rows, 256), dtype)  # rows that the copy engine could take
        lying[:, : 4 * depth] = a
        c = np.full((rows, 64), 77, np.dtype(acc[3:]))
        run_function(made.tile(), (1,), [lying, b, c, 4 * depth, 256, 64], 4, "cuda:90a")
        np.testing.assert_array_equal(c, a.astype(np.float64) @ b.astype(np.float64))


def specialised(value: int) -> str:
    return "i32:1" if value == 1 else "i32:16" if value % 16 == 0 else "i32"


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a"])
@pytest.mark.parametrize("x", ["x", "x * 2"])
def test_operands_in_rings_are_read_where_they_lie(from_text, target: str, x: str) -> None:
    signature = {"a": "*fp32:16", "b": "*fp32:16", "c": "*fp32:16", "K": "i32:16"}
    signature |= {"sam": "i32:16", "sak": "i32:1", "sbk": "i32:16", "sbn": "i32:1"}
    made = from_text(LOOP.format(acc="tl.float32", x=x, y="y"), signature, {"M": 32, "N": 32, "BK": 32})
    function = made.gpu(target)
    (dot,) = [op for op in function.walk() if isinstance(op, Dot)]
    inside = [isinstance(v.op, Slot | SharedView) for v in (dot.a, dot.b)]
    assert inside == [x == "x", True]
    assert (dot in function.allocation.places) == (x != "x")
    loads = [op for op in function.walk() if isinstance(op, ConvertLayout) and op.x.type.shared is not None]
    assert len(loads) == inside.count(False)
