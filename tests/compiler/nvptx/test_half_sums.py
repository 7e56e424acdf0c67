"""Products that are added up in float16, on the simulator: small integers, whose sums are exact; and what rounds."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from single_operations import DTYPES

#: ``MODE`` 0: the loop carries the sums; 1: it scales them first; 2: each product is added up in halves, all in f32;
#: 3: a second product is added to the first.
SUMS = """
def sums(a, b, c, K, MODE: tl.constexpr, TURN: tl.constexpr, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
    acc = tl.zeros((M, N), tl.float32 if MODE == 2 else tl.float16)
    for s in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (s + k)[None, :])
        y = tl.load(b + (n[None, :] * K + (s + k)[:, None] if TURN else (s + k)[:, None] * N + n[None, :]))
        if MODE == 2:
            acc += tl.dot(-x, y, out_dtype=tl.float16)
        elif MODE == 1:
            acc = tl.dot(x, y, acc * -1.0, out_dtype=tl.float16)
        else:
            acc = tl.dot(x, y, acc, out_dtype=tl.float16)
            if MODE == 3:
                acc = tl.dot(-x, y, acc, out_dtype=tl.float16)
                acc = tl.dot(x, y, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc)
"""


def product(mode: int, a: Any, b: Any, step: int) -> Any:
    parts = [a[:, s : s + step].astype(np.float64) @ b[s : s + step].astype(np.float64) for s in range(0, len(b), step)]
    signs = {0: [1] * len(parts), 1: [(-1) ** (len(parts) - 1 - i) for i in range(len(parts))], 2: [-1] * len(parts)}
    return sum(sign * part for sign, part in zip(signs.get(mode, signs[0]), parts, strict=True))


@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("target", "shape", "warps", "turn"),
    [
        ("cuda:80", (32, 32, 16), 1, False),
        ("cuda:80", (64, 32, 32), 4, True),
        ("cuda:90a", (64, 64, 32), 4, False),
        ("cuda:90a", (128, 32, 64), 8, True),
        ("cuda:90a", (64, 128, 16), 8, False),
        ("cuda:90a", (128, 32, 16), 4, False),  # two instructions of a warp group
        ("cuda:90a", (16, 64, 32), 4, True),
    ],
)
def test_sums_of_halves(
    from_text: Callable[..., Any],
    run_function: Callable[..., Any],
    rng: Any,
    mode: int,
    target: str,
    shape: tuple[int, int, int],
    warps: int,
    turn: bool,
) -> None:
    m, n, step = shape
    kind = "fp32" if mode == 2 else "fp16"
    types = {"a": "*fp16:16", "b": "*fp16:16", "c": f"*{kind}:16", "K": "i32:16"}
    constants = {"MODE": mode, "TURN": turn, "M": m, "N": n, "BK": step}
    made = from_text(SUMS, types, constants, warps, num_stages=3)
    llvm = made.program(target).llvm
    names = set(re.findall(r"(?:wgmma\.mma_async|mma)\.sync\.aligned\.[\w.]+", llvm))
    assert names and all(".f16.f16.f16" in name for name in names)
    assert "phi half" not in llvm  # pairs stay together from one iteration to the next
    a, b = rng.integers(-2, 3, (m, 5 * step)).astype(np.float16), rng.integers(-2, 3, (5 * step, n)).astype(np.float16)
    c = np.full((m, n), 77, np.float32 if mode == 2 else np.float16)
    given = [a, np.ascontiguousarray(b.T) if turn else b, c, 5 * step]
    run_function(made.tile(), (1,), given, warps, target, num_stages=3)
    np.testing.assert_array_equal(c, product(mode, a, b, step))


@pytest.mark.parametrize("kind", ["bf16", "fp8e5"])
def test_sums_of_other_types_are_wide_and_rounded_once(from_text: Callable[..., Any], kind: str) -> None:
    types = {"a": f"*{kind}:16", "b": f"*{kind}:16", "c": "*fp16:16", "K": "i32:16"}
    made = from_text(SUMS, types, {"MODE": 0, "TURN": False, "M": 64, "N": 64, "BK": 32}, 4)
    names = set(re.findall(r"wgmma\.mma_async\.sync\.aligned\.[\w.]+", made.program().llvm))
    assert names and all(".f32." in name for name in names)


def test_what_f16_cannot_hold_is_lost_at_each_step(
    from_text: Callable[..., Any], run_function: Callable[..., Any]
) -> None:
    """4096 and a half, sixteen at a time: each half is lost, where one rounding at the end would keep their sum."""
    types = {"a": "*fp16:16", "b": "*fp16:16", "c": "*fp16:16", "K": "i32:16"}
    made = from_text(SUMS, types, {"MODE": 0, "TURN": False, "M": 64, "N": 32, "BK": 16}, 4)
    a, b = np.zeros((64, 256), np.float16), np.ones((256, 32), np.float16)
    a[:, 0], a[:, 16::16] = 4096, 0.5
    c = np.zeros((64, 32), np.float16)
    run_function(made.tile(), (1,), [a, b, c, 256], 4, "cuda:90a")
    np.testing.assert_array_equal(c, 4096)


#: A product that begins with ``START``, and is stored in f16.
ONCE = """
def once(a, b, c, START: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x, y = tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :])
    tl.store(c + m[:, None] * N + n[None, :], tl.dot(x, y, tl.full((M, N), START, tl.float16), out_dtype=tl.float16))
"""


@pytest.mark.parametrize("start", [0, 2])
@pytest.mark.parametrize(
    ("kind", "shape", "code"),
    [
        ("fp8e5", (64, 16, 32), "wgmma"),
        ("fp8e5", (16, 8, 32), "mma.sync"),
        ("fp16", (16, 8, 8), ""),
        ("fp16", (16, 1, 16), ""),
    ],
)
def test_what_is_not_added_up_in_halves_is_rounded_once(
    from_text: Callable[..., Any],
    run_function: Callable[..., Any],
    start: int,
    kind: str,
    shape: tuple[int, int, int],
    code: str,
) -> None:
    """2048 and some ones, each of which f16 would lose, in operands that no tensor core adds up in it."""
    m, n, k = shape
    types = {"a": f"*{kind}:16", "b": f"*{kind}:16", "c": "*fp16:16"}
    made = from_text(ONCE, types, {"START": start, "M": m, "N": n, "K": k}, 4)
    found = re.findall(r"wgmma|mma\.sync", made.program().llvm)
    assert set(found) == ({code} if code else set())
    a, b = np.zeros((m, k)), np.ones((k, n))
    a[:, 0], a[:, 1:6] = 2048, 1
    c = np.zeros((m, n), np.float16)
    dtype = DTYPES[kind]
    run_function(made.tile(), (1,), [a.astype(dtype), b.astype(dtype), c], 4)
    np.testing.assert_array_equal(c, np.float16(2048 + 5 + start))
