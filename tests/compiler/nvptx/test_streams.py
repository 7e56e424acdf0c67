"""What is fetched ahead of the loop that reads it, and what must not be."""

from __future__ import annotations

import numpy as np
import pytest

from deuteron.compiler.gpu.asynchronous import RingBuffer

#: Each step multiplies what the one before has stored.
CHAIN = """
def chain(x, b, steps):
    m, n = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
    for i in range(0, steps):
        left = tl.load(x + i * 4096 + m * 64 + n)
        right = tl.load(b + i * 4096 + m * 64 + n)
        tl.store(x + (i + 1) * 4096 + m * 64 + n, tl.dot(left, right).to(tl.float16))
        tl.debug_barrier()
"""
#: The same with the address of what is stored chosen at run time: any array may be meant.
CHOSEN = CHAIN.replace("chain(x, b, steps)", "chosen(x, b, y, steps, other)").replace(
    "tl.store(x +", "tl.store((y if other else x) +"
)


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90a", "cuda:120"])
@pytest.mark.parametrize("chosen", [False, True])
def test_what_the_kernel_writes_is_not_fetched_ahead(from_text, run_function, target: str, chosen: bool) -> None:
    signature = {"x": "*fp16:16", "b": "*fp16:16", "steps": "i32"}
    made = from_text(CHOSEN, {**signature, "y": "*fp16:16", "other": "i32"}) if chosen else from_text(CHAIN, signature)
    rings = [op for op in made.gpu(target).walk() if isinstance(op, RingBuffer)]
    assert len(rings) == (0 if chosen else 1)  # of b
    rng = np.random.default_rng(0)
    b = (2 * np.stack([rng.permutation(np.eye(64)) for _ in range(4)])).astype(np.float16)
    x = np.zeros((5, 64, 64), np.float16)
    x[0] = rng.integers(-4, 5, (64, 64))
    wanted = [x[0].astype(np.float64)]
    for step in b:
        wanted.append(wanted[-1] @ step)
    run_function(
        made.tile(), (1,), [x, b, *([np.zeros_like(x)] if chosen else []), 4, *([0] if chosen else [])], 4, target
    )
    np.testing.assert_array_equal(x, wanted)
