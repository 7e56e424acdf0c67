"""What a search of ``@autotune`` leaves in the arrays that its launches wrote to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron import Config


@deuteron.jit
def fill(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


BLOCKS = [Config({"BLOCK": b}) for b in (64, 128, 256)]


def grid(meta: Any) -> tuple[int, ...]:
    return (deuteron.cdiv(meta["n"], meta["BLOCK"]),)


def once(call: Callable[[], object], *, quantiles: Sequence[float]) -> float:
    call()
    return 1.0


@pytest.mark.parametrize("words", [True, False], ids=["Triton's", "without the word"])
def test_hooks_reset_after_a_search_what_they_reset_before_launches(words: bool) -> None:
    told: list[bool] = []

    def start(arguments: dict[str, Any], reset_only: bool = False) -> None:
        told.append(reset_only)
        assert arguments["BLOCK"] == 64 or not reset_only
        arguments["x"][...] = 0

    hook = start if words else lambda arguments: start(arguments)
    kernel = deuteron.autotune(BLOCKS, ["n"], do_bench=once, pre_hook=hook)(fill)
    x = np.full(300, 5, np.float32)
    kernel[grid](x, 300)
    assert set(x) == {1.0} and told.count(True) == words and told[-1] is words
    kernel[grid](x, 300)
    assert set(x) == {2.0}


def test_arrays_are_reset_where_one_candidate_is_left() -> None:
    """It needs no timing, and the launch finds the arrays as after one."""

    def start(arguments: dict[str, Any], reset_only: bool = False) -> None:
        arguments["x"][...] = 3

    first = {"early_config_prune": lambda configs, named, **kwargs: configs[:1]}
    for options, left in (({"reset_to_zero": ["x"]}, 1.0), ({"restore_value": ["x"]}, 6.0), ({"pre_hook": start}, 4.0)):
        kernel = deuteron.autotune(BLOCKS, ["n"], prune_configs_by=first, **options)(fill)
        x = np.full(300, 5, np.float32)
        kernel[grid](x, 300)
        assert set(x) == {left}, options


def test_timings_that_were_kept_reset_nothing(private_cache: Path) -> None:
    """No launch of a search wrote to the arrays, so that what the program has in them stays."""
    for n, option, left in ((300, "reset_to_zero", [1.0, 6.0]), (299, "restore_value", [6.0, 6.0])):
        found = []
        for _ in range(2):
            options: dict[str, Any] = {option: ["x"], "do_bench": once, "cache_results": True}
            x = np.full(n, 5, np.float32)
            deuteron.autotune(BLOCKS, ["n"], **options)(fill)[grid](x, n)
            found.append(x[0])
        assert found == left, option


@pytest.mark.parametrize(("options", "left"), [({"reset_to_zero": ["x"]}, 1.0), ({"restore_value": ["x"]}, 6.0)])
def test_every_launch_of_a_benchmark_finds_the_arrays_reset(options: dict[str, Any], left: float) -> None:
    """A kernel that takes its tiles from a counter has nothing to do in a launch that finds the counter at its end."""
    x, found = np.full(300, 5, np.float32), []

    def thrice(call: Callable[[], object], *, quantiles: Sequence[float]) -> float:
        for _ in range(3):
            call()
            found.append(x[0])
        return 1.0

    deuteron.autotune(BLOCKS, ["n"], do_bench=thrice, **options)(fill)[grid](x, 300)
    assert found == 9 * [left] and set(x) == {left}


@pytest.mark.parametrize("end", [RuntimeError, KeyboardInterrupt])
def test_arrays_are_restored_where_a_search_is_broken_off(end: type[BaseException]) -> None:
    def broken_off(call: Callable[[], object], *, quantiles: Sequence[float]) -> float:
        call()
        raise end

    x = np.full(300, 5, np.float32)
    kernel = deuteron.autotune(BLOCKS, ["n"], do_bench=broken_off, restore_value=["x"])(fill)
    with pytest.raises(end):
        kernel[grid](x, 300)
    assert set(x) == {5.0} and not kernel.cache
    kernel.do_bench = once
    kernel[grid](x, 300)
    assert set(x) == {6.0}
