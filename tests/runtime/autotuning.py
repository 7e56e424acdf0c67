"""A kernel to tune, and times that tests decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import deuteron
import deuteron.language as tl
from deuteron import Config


def fill_kernel() -> deuteron.JITFunction:
    """A new kernel each time, so that tests do not share variants."""

    @deuteron.jit
    def fill(x, n, BLOCK: tl.constexpr, ADD: tl.constexpr = 0):
        tl.static_assert(BLOCK != 512, "512 is refused")
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + i, tl.load(x + i, mask=i < n) + ADD + 1, mask=i < n)

    return fill


def grid(meta: Any) -> tuple[int, ...]:
    return (deuteron.cdiv(meta["n"], meta["BLOCK"]),)


class Stopwatch:
    """A do_bench that runs the kernel once and says what the test decided; keeps the order of its calls."""

    def __init__(self, milliseconds: Callable[[int], float]) -> None:
        self.milliseconds = milliseconds
        self.blocks: list[int] = []
        self.block = 0

    def note(self, arguments: dict[str, Any], **_: Any) -> None:
        self.block = arguments["BLOCK"]

    def __call__(self, call: Callable[[], object], *, quantiles: Sequence[float]) -> list[float]:
        assert tuple(quantiles) == (0.5, 0.2, 0.8)
        call()
        self.blocks.append(self.block)
        return [self.milliseconds(self.block)] * 3


def tuned(configs: list[Config], watch: Stopwatch, key: Sequence[str] = ("n",), **options: Any):
    decorate = deuteron.autotune(configs, key, do_bench=watch, pre_hook=watch.note, **options)
    return decorate(fill_kernel())


#: Three that work.
BLOCKS = [Config({"BLOCK": b}) for b in (64, 128, 256)]
