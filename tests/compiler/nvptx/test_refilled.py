"""Slots that are filled again in the iteration that reads them, where a slot less makes room for another CTA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from deuteron.compiler.gpu import overlap
from deuteron.compiler.gpu.asynchronous import Fetch, FetchTile, Pipe, Receive
from deuteron.compiler.gpu.pipeline import lower_to_gpu
from deuteron.compiler.gpu.residency import ANOTHER_CTA
from deuteron.compiler.ir.core import Op
from deuteron.compiler.target import Target
from deuteron.compiler.tile.control import For
from deuteron.compiler.tile.matmul import Dot
from deuteron.compiler.tile.memory import Barrier

#: Rows of A by a table, so that threads copy them; B as a box, by the copy engine where there is one.
KERNEL = """
def product(a, table, b, c, K, sa, sb, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, B)
    row = tl.load(table + m)
    a_at = a + row[:, None] * sa + k[None, :]
    b_at = b + k[:, None] * sb + n[None, :]
    for turn in range(2):
        acc = tl.zeros((M, N), tl.float32)
        for i in range(0, tl.cdiv(K, B)):
            x = tl.load(a_at + i * B, mask=k[None, :] < K - i * B, other=0.0)
            y = tl.load(b_at + i * B * sb, mask=k[:, None] < K - i * B, other=0.0)
            acc += tl.dot(x, y)
        tl.store(c + turn * M * N + m[:, None] * N + n[None, :], acc)
"""
SIGNATURE = {"a": "*fp16:16", "table": "*i32:16", "b": "*fp16:16", "c": "*fp32:16"}
SIGNATURE |= {"K": "i32:16", "sa": "i32:16", "sb": "i32:16"}


def ring_loops(function: Any) -> list[For]:
    """The loops that wait for rings."""
    loops = [op for op in function.walk() if isinstance(op, For)]
    return [loop for loop in loops if any(isinstance(op, Receive) for op in loop.body.ops)]


def _kind(op: Op) -> type[Op] | None:
    """Of a product or a fetch, or the first one below ``op``."""
    below = [inner for block in op.blocks for inner in block.walk()]
    return next((type(one) for one in (op, *below) if isinstance(one, Dot | Fetch | FetchTile)), None)


def refills(function: Any) -> bool:
    """Whether the fetches of such a loop stand behind its products."""
    (loop,) = ring_loops(function)
    kinds = [_kind(op) for op in loop.body.ops]
    places = [place for place, kind in enumerate(kinds) if kind in (Fetch, FetchTile)]
    assert places
    return min(places) > kinds.index(Dot)


def slots(function: Any) -> int:
    return max(op.slots for op in function.walk() if isinstance(op, Pipe))


@pytest.mark.parametrize(
    ("target", "tile", "stages", "warps", "wanted"),
    [
        ("cuda:90a", (16, 128, 128), 3, 4, 2),  # two CTAs with three slots, three with two
        ("cuda:90a", (16, 64, 128), 4, 4, 3),
        ("cuda:90a", (16, 128, 128), 2, 4, 1),  # four CTAs, whose copies hide each other's products
        ("cuda:90a", (32, 128, 64), 4, 4, 3),
        ("cuda:90a", (32, 128, 64), 2, 4, 2),  # registers have no room for another CTA
        ("cuda:90a", (32, 128, 64), 4, 16, 4),  # nor here
        ("cuda:90a", (64, 128, 64), 4, 4, 4),  # a product of a warp group goes on by itself
        ("cuda:80", (128, 128, 64), 3, 4, 2),
        ("cuda:80", (64, 64, 64), 5, 4, 5),
        ("cuda:80", (64, 64, 64), 6, 4, 5),
        ("cuda:120", (64, 64, 64), 3, 4, 2),
    ],
)
def test_a_slot_less_where_another_cta_fits(
    from_text: Callable[..., Any], target: str, tile: tuple[int, int, int], stages: int, warps: int, wanted: int
) -> None:
    made = from_text(KERNEL, SIGNATURE, dict(zip("MNB", tile, strict=True)), warps=warps, num_stages=stages)
    seen: dict[str, Any] = {}
    lower_to_gpu(
        made.tile(),
        Target.parse(target),
        made.schedule,
        observe=lambda name, one: seen.update({name: one.function.clone()}),
    )
    assert slots(seen["rings"]) == wanted
    if wanted < stages:
        assert refills(seen["rings"])
        (loop,) = ring_loops(seen["rings"])
        assert sum(isinstance(op, Barrier) for op in loop.body.ops) == 2
        assert {op.pending for op in loop.body.ops if isinstance(op, Receive)} == {wanted - 1}


WEIGHTS = """
def product(a, b, c, M, N, K, DECODE: tl.constexpr):
    m, n, k = tl.arange(0, 64), tl.program_id(0) * 128 + tl.arange(0, 128), tl.arange(0, 64)
    acc = tl.zeros((64, 128), tl.float32)
    for s in range(0, K, 64):
        x = tl.load(a + m[:, None] * K + s + k[None, :])
        w = tl.load(b + ((s + k[:, None]) // 8) * N + n[None, :])
        if DECODE:
            w = (w >> (k[:, None] % 8) * 4) & 15
        acc = tl.dot(x, w.to(tl.float16), acc)
    tl.store(c + m[:, None] * N + n[None, :], acc)
"""


WEIGHT_TYPES = {"a": "*fp16:16", "c": "*fp32:16", "M": "i32", "N": "i32:16", "K": "i32:16"}


@pytest.mark.parametrize(
    ("target", "stored", "stages", "wanted"),
    [
        ("cuda:90a", "i32", 3, 2),  # 40 KiB a slot
        ("cuda:90a", "i32", 2, 2),
        ("cuda:90a", "i32", 5, 5),  # 200 KiB, and with a slot less no other CTA fits
        ("cuda:90a", "fp16", 3, 3),  # nothing to wait for between copy and product
    ],
)
def test_a_slot_less_where_threads_make_the_operand(
    from_text: Callable[..., Any], target: str, stored: str, stages: int, wanted: int
) -> None:
    """Of a product that goes on by itself."""
    types = {**WEIGHT_TYPES, "b": f"*{stored}:16"}
    made = from_text(WEIGHTS, types, {"DECODE": stored == "i32"}, warps=4, num_stages=stages)
    assert slots(made.gpu(target)) == wanted


@pytest.mark.parametrize(("depth", "stages", "wanted"), [(64, 6, 5), (128, 4, 4)])
def test_what_threads_make_takes_memory_too(
    from_text: Callable[..., Any], depth: int, stages: int, wanted: int
) -> None:
    """Beside five slots of 18 KiB an SM holds another CTA with 8 KiB for the operand; beside three of 36 KiB it would,
    but for 16 KiB."""
    text = WEIGHTS.replace("(0, 64), tl.program_id(0) * 128 + tl.arange(0, 128), tl.arange(0, 64)",
                           f"(0, 16), tl.program_id(0) * 64 + tl.arange(0, 64), tl.arange(0, {depth})")  # fmt: skip
    text = text.replace("(64, 128)", "(16, 64)").replace("K, 64)", f"K, {depth})")
    made = from_text(text, {**WEIGHT_TYPES, "b": "*i32:16"}, {"DECODE": True}, warps=4, num_stages=stages)
    assert slots(made.gpu("cuda:90a")) == wanted


@pytest.mark.parametrize(("rows", "stages", "lean"), [(16, 3, True), (16, 2, True), (128, 2, False)])
def test_fewer_programs_than_sms_keep_their_slots(
    from_text: Callable[..., Any], rows: int, stages: int, lean: bool
) -> None:
    made = from_text(KERNEL, SIGNATURE, {"M": rows, "N": 128, "B": 128 * 16 // rows}, num_stages=stages)
    many, few = (
        lower_to_gpu(made.tile(), Target.parse("cuda:90a"), made.schedule, denied)
        for denied in (frozenset(), frozenset({ANOTHER_CTA}))
    )
    assert (ANOTHER_CTA in many.recipe.guards) == lean
    assert ANOTHER_CTA not in few.recipe.guards
    assert (slots(many), slots(few)) == (stages - lean, stages)


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a", "cuda:120"])
@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize("depth", [0, 16, 32, 144, 240])
def test_results(
    from_text: Callable[..., Any],
    run_function: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    stages: int,
    depth: int,
) -> None:
    """With fewer iterations than slots, as many, and more; the loop comes round twice."""
    monkeypatch.setattr(overlap, "economised", lambda stream, *_, **__: replace(stream, slots=stages, refilled=True))
    made = from_text(KERNEL, SIGNATURE, {"M": 16, "N": 32, "B": 32})
    rng = np.random.default_rng(depth)
    a = rng.integers(-3, 4, (40, 240)).astype(np.float16)
    b = rng.integers(-3, 4, (max(depth, 1), 48)).astype(np.float16)
    table = rng.permutation(40)[:16].astype(np.int32)
    c = np.full((2, 16, 32), 77, np.float32)
    run_function(made.tile(), (1,), [a, table, b, c, depth, 240, 48], 4, target)
    wanted = a[table, :depth].astype(np.float64) @ b[:depth, :32].astype(np.float64)
    np.testing.assert_array_equal(c, np.stack([wanted, wanted]))
