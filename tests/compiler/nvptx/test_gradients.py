"""Gradients of attention on the simulator: rows that each warp has whole, products that begin when they can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from deuteron.compiler.gpu.asynchronous import Await, Receive, Wgmma
from deuteron.compiler.gpu.memory.scratch import GpuFunction
from deuteron.compiler.gpu.ops import ConvertLayout, VectorLoad
from deuteron.compiler.ir.core import Op
from deuteron.compiler.tile.control import For
from deuteron.compiler.tile.elementwise import Exp2

POINTERS = dict.fromkeys(("Q", "K", "V", "DOut"), "*bf16:16") | dict.fromkeys(("Lse", "Delta"), "*fp32:16")
SCALARS = {"N": "i32", "scale": "fp32", "sm_scale": "fp32"}
RESULTS = {"attention_dkdv": ("DK", "DV"), "attention_dq": ("DQ",)}


@pytest.fixture(scope="session")
def gradient(example_kernel: Callable[..., Any]) -> Callable[..., Any]:
    """``gradient(name, warps, head, causal)``: one of the example's two kernels, in tiles of 16 rows a warp by 64."""

    def make(name: str, warps: int, head: int, causal: bool) -> Any:
        held, walked = ("BLOCK_N", "BLOCK_M") if name == "attention_dkdv" else ("BLOCK_M", "BLOCK_N")
        constexprs = {"HEAD": head, "CAUSAL": causal, held: 16 * warps, walked: 64}
        signature = {**POINTERS, **dict.fromkeys(RESULTS[name], "*bf16:16"), **SCALARS}
        return example_kernel("attention.py", name, signature, constexprs, num_warps=warps, num_stages=2)

    return make


def attention(head: int, n: int, causal: bool) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Arguments, and the gradients in double precision."""
    rng = np.random.default_rng(n + head)
    given = {name: rng.standard_normal((n, head)).astype(ml_dtypes.bfloat16) for name in ("Q", "K", "V", "DOut")}
    q, k, v, d_out = (given[name].astype(np.float64) for name in ("Q", "K", "V", "DOut"))
    scores = q @ k.T * head**-0.5
    if causal:
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
    lse = np.log2(np.exp(scores).sum(1))
    p = np.exp2(scores * np.log2(np.e) - lse[:, None])
    delta = (p @ v * d_out).sum(1)
    ds = p * (d_out @ v.T - delta[:, None]) * head**-0.5
    given |= {"Lse": lse.astype(np.float32), "Delta": delta.astype(np.float32)}
    return given, {"DK": ds.T @ q, "DV": p.T @ d_out, "DQ": ds @ k}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("warps", "head"), [(8, 64), (8, 128), (4, 64)])
@pytest.mark.parametrize("name", RESULTS)
def test_gradients(gradient, simulated, name: str, warps: int, head: int, causal: bool) -> None:
    made = gradient(name, warps, head, causal)
    n = 200  # a whole tile or more, and a part of one
    given, wanted = attention(head, n, causal)
    found = {name: np.full((n, head), 77, ml_dtypes.bfloat16) for name in RESULTS[name]}
    scales = (n, head**-0.5 * float(np.log2(np.e)), head**-0.5)
    simulated(made, (-(-n // (16 * warps)), 1), [*given.values(), *found.values(), *scales])
    for key, value in found.items():
        error = np.linalg.norm(value.astype(np.float64) - wanted[key]) / np.linalg.norm(wanted[key])
        assert error < 1e-2, key


def body_of(function: GpuFunction) -> list[Op]:
    """That of the first loop with products."""
    return next(o.body.ops for o in function.ops_of(For) if any(isinstance(p, Wgmma) for p in o.body.ops))


@pytest.mark.parametrize("warps", [4, 8])
def test_rows_of_columns_are_whole_in_each_warp_and_shuffled(gradient, warps: int) -> None:
    """No group of warps waits for another in the loop."""
    function = gradient("attention_dkdv", warps, 64, False).gpu()
    body = body_of(function)
    rows = [op for op in body if isinstance(op, VectorLoad)]
    assert len(rows) == 2
    for row in rows:
        layout = row.result.type.layout
        assert layout is not None and not any(map(any, layout.warp)) and layout.registers == 2
    assert len([op for op in body if isinstance(op, ConvertLayout)]) == 2
    assert not any(op in function.allocation.places for op in body)


@pytest.mark.parametrize(("warps", "head", "together"), [(8, 64, True), (8, 128, True), (4, 64, True), (4, 128, False)])
def test_a_product_begins_when_its_operands_are_there(gradient, warps: int, head: int, together: bool) -> None:
    """Beside one group that has many sums it does not."""
    body = body_of(gradient("attention_dq", warps, head, False).gpu())
    order = [type(op) for op in body if isinstance(op, Wgmma | Exp2)]
    assert order == ([Wgmma, Wgmma, Exp2, Wgmma] if together else [Wgmma, Exp2, Wgmma, Wgmma])


@pytest.mark.parametrize(("head", "kept"), [(64, False), (128, True)])
def test_long_products_are_waited_for_behind_the_exponents(gradient, head: int, kept: bool) -> None:
    body = body_of(gradient("attention_dq", 8, head, False).gpu())
    waits = [op for op in body if isinstance(op, Await)]
    assert [wait.pending for wait in waits] == [1, 0]
    assert isinstance(body[body.index(waits[1]) - 1], Receive) == kept
