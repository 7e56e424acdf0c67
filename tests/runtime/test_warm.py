"""Warm-ups of arguments that were seen before: the same variant, found without looking at the kernel again, and only
while nothing that it depends on has changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler import knobs
from deuteron.compiler.errors import LaunchError
from deuteron.compiler.launch_recipe import Guard, LaunchRecipe
from deuteron.compiler.runtime.launch import jit
from deuteron.compiler.runtime.variant import pipeline

SCALE = tl.constexpr(2)


def scale(x, out, n, stride, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i * stride, mask=i < n) * SCALE, mask=i < n)


X = np.arange(256, dtype=np.float32)
OUT = np.zeros(8, np.float32)


@pytest.fixture
def kernel() -> deuteron.JITFunction:
    return deuteron.JITFunction(scale)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arguments of each specialisation."""
    seen: list[Any] = []
    specialize = jit.specialize

    def counted(kernel: Any, arguments: Any, *rest: Any, **options: Any) -> Any:
        seen.append(arguments)
        return specialize(kernel, arguments, *rest, **options)

    monkeypatch.setattr(jit, "specialize", counted)
    return seen


def test_the_second_time_nothing_is_looked_at(kernel: deuteron.JITFunction, looked: list[Any]) -> None:
    made = kernel.warmup(X, OUT, 5, 3, BLOCK=8, num_warps=8, grid=(1,))
    assert kernel.warmup(X, OUT, 6, 3, BLOCK=8, num_warps=8, grid=lambda meta: (meta["BLOCK"],)) is made
    assert kernel.warmup(X, OUT, n=7, stride=3, BLOCK=8, num_warps=8) is made
    assert len(looked) == 1
    other = kernel.warmup(X, OUT, 5, 3, BLOCK=4, num_warps=8)
    assert other is not made and other.variant.constants["BLOCK"] == 4
    assert kernel.warmup(X, OUT, 5, 16, BLOCK=8, num_warps=8) is not made  # a multiple of 16
    assert len(looked) == 3


def test_it_is_the_variant_that_a_launch_runs(kernel: deuteron.JITFunction) -> None:
    made = kernel.warmup(X, OUT, 5, 3, BLOCK=8)
    assert kernel[(1,)](X, OUT, 5, 3, BLOCK=8) is made
    assert kernel.warmup(X, OUT, 5, 3, BLOCK=8) is made
    assert OUT[:5].tolist() == (X[:15:3] * 2).tolist()


def test_types_as_text_are_read_every_time(kernel: deuteron.JITFunction, looked: list[Any]) -> None:
    first = kernel.warmup("*f32", "*f32", "i32", "i32", BLOCK=8)
    second = kernel.warmup("*f32:16", "*f32", "i32", "i32", BLOCK=8)
    assert first is not second and str(second.signature["x"]) == "*f32:16"
    assert kernel.warmup("*f32", "*f32", "i32", "i32", BLOCK=8) is first
    assert kernel.warmup(X, "*f32:16", 5, 3, BLOCK=8).signature["out"].divisibility == 16
    assert kernel.warmup(X, tl.float16, 5, 3, BLOCK=8).signature["out"].dtype == "f16"
    assert len(looked) == 5


def test_a_changed_global_is_told(kernel: deuteron.JITFunction, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel.warmup(X, OUT, 5, 3, BLOCK=8)
    monkeypatch.setattr(f"{__name__}.SCALE", tl.constexpr(3))
    with pytest.raises(Exception, match="SCALE"):
        kernel.warmup(X, OUT, 5, 3, BLOCK=8)


def test_knobs_and_an_emptied_cache_count(kernel: deuteron.JITFunction, looked: list[Any]) -> None:
    made = kernel.warmup(X, OUT, 5, 3, BLOCK=8)
    with knobs.debug.scope(True):
        checked = kernel.warmup(X, OUT, 5, 3, BLOCK=8)
        assert checked is not made and checked.variant.schedule.debug
    assert kernel.warmup(X, OUT, 5, 3, BLOCK=8) is made
    assert len(looked) == 3
    kernel.cache.clear()
    assert kernel.warmup(X, OUT, 5, 3, BLOCK=8) is not made


def test_each_value_gets_the_variant_whose_guards_it_keeps(
    kernel: deuteron.JITFunction, monkeypatch: pytest.MonkeyPatch, looked: list[Any]
) -> None:
    eight, positive = Guard("stride", "multiple", 8), Guard("n", "least", 0)
    build_cpu = pipeline._build_cpu

    def with_guards(work: pipeline.Build, *rest: Any) -> None:
        build_cpu(work, *rest)
        kept = tuple(guard for guard in (eight, positive) if guard not in work.variant.denied)
        work.recipe = LaunchRecipe(128, kept)

    monkeypatch.setattr(pipeline, "_build_cpu", with_guards)
    with knobs.always_compile.scope(True):
        for n, stride, denied in [(5, 8, set()), (5, 4, {eight}), (-5, 8, {positive}), (-5, 4, {eight, positive})] * 2:
            assert set(kernel.warmup(X, OUT, n, stride, BLOCK=8).variant.denied) == denied
    assert len(looked) == 1


def test_wrong_arguments_are_refused_as_by_a_launch(kernel: deuteron.JITFunction) -> None:
    kernel.warmup(X, OUT, 5, 3, BLOCK=8)
    with pytest.raises(LaunchError, match="'stride' is missing"):
        kernel.warmup(X, OUT, 5, BLOCK=8)
    with pytest.raises(LaunchError, match="1 more"):
        kernel.warmup(X, OUT, 5, 3, 8, 9)
    with pytest.raises(LaunchError, match="argument 'n'"):
        kernel.warmup(X, OUT, object(), 3, BLOCK=8)
