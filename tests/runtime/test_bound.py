"""Bound launches: what is kept, what is looked at again, and when."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler import knobs
from deuteron.compiler.errors import LaunchError
from deuteron.compiler.runtime.launch.compiled import CompiledKernel


@deuteron.jit
def increment(x, n, BY: tl.constexpr = 1, BLOCK: tl.constexpr = 8):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + BY, mask=i < n)


def grid(meta: Any) -> tuple[int, ...]:
    return (deuteron.cdiv(meta["n"], meta["BLOCK"]),)


@pytest.fixture
def x() -> np.ndarray:
    return np.zeros(64, np.float32)


def counts(x: np.ndarray) -> list[int]:
    """Runs of equal values, as value, length, value, length ..."""
    made: list[int] = []
    for value in x.astype(int).tolist():
        if made and made[-2] == value:
            made[-1] += 1
        else:
            made += [value, 1]
    return made


def test_binding_launches_nothing_and_calls_repeat_the_launch(x: np.ndarray) -> None:
    again = increment.bound(grid, x, 20, BY=2)
    assert counts(x) == [0, 64]
    for _ in range(3):
        made = again()
        assert isinstance(made, CompiledKernel) and made.variant is not None
        assert made.variant.constants["BY"] == 2
    assert counts(x) == [6, 20, 0, 44]
    assert repr(again) == "<BoundLaunch of increment>"


def test_rebind_replaces_what_is_given(x: np.ndarray) -> None:
    again = increment.bound(grid, x, 20, BY=2)
    assert again.rebind(n=40) is again
    again()
    assert counts(x) == [2, 40, 0, 24]
    other = np.zeros(64, np.float32)
    again.rebind(other)()  # the first argument; n and BY stay
    again.rebind(other, 8, BY=1)()
    assert counts(x) == [2, 40, 0, 24]
    assert counts(other) == [3, 8, 2, 32, 0, 24]
    again.rebind(x=x, BLOCK=32)()  # the grid is computed again
    assert counts(x) == [3, 8, 2, 32, 0, 24]


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((object(),), {}, "increment: argument .x.: .* neither a number nor an array"),
        ((1, 2, 3, 4, 5), {}, "increment takes 4 arguments, got 5"),
        ((None, 3), {"n": 5}, "the argument 'n' is given twice"),
        ((), {"m": 5}, "increment has no argument 'm'"),
    ],
)
def test_a_rebind_that_fails_changes_nothing(x: np.ndarray, args: Any, kwargs: Any, message: str) -> None:
    again = increment.bound(grid, x, 20)
    with pytest.raises(Exception, match=message):
        again.rebind(*args, **kwargs)
    again()
    again.rebind(BY=1)()
    assert counts(x) == [2, 20, 0, 44]


def test_wrong_arguments_are_refused_when_binding(x: np.ndarray) -> None:
    with pytest.raises(LaunchError, match="the argument 'n' is missing"):
        increment.bound(grid, x)
    with pytest.raises(LaunchError, match="not made of whole numbers"):
        increment.bound("grid", x, 20)


def test_arrays_are_kept_alive_by_the_launch_that_uses_them() -> None:
    array = deuteron.get_device("cpu").array(np.zeros(64, np.float32))

    class Owner(np.ndarray):
        pass

    owner = array.numpy.view(Owner)
    seen = weakref.ref(owner)
    again = increment.bound(grid, owner, 20)
    del owner
    gc.collect()
    assert seen() is not None
    again()
    assert counts(array.numpy) == [1, 20, 0, 44]
    again.rebind(array)
    gc.collect()
    assert seen() is None


def test_hooks_installed_later_see_bound_launches(x: np.ndarray, watch_launches: Any) -> None:
    kernel = deuteron.JITFunction(increment.fn)
    again = kernel.bound(grid, x, 20)
    before: list[Any] = []
    kernel.add_pre_run_hook(lambda *args, **options: before.append((args[1:], options)))
    with watch_launches() as events:
        again()
    again()
    assert before == [((20,), {})] * 2
    assert [(e.name, e.grid) for e in events] == [("increment", (3, 1, 1))]


def test_heuristics_are_computed_again_for_other_arguments(x: np.ndarray) -> None:
    kernel = deuteron.heuristics({"BY": lambda given: 1 if given["n"] < 32 else 5})(increment)
    again = kernel.bound(grid, x, 20)
    again()
    assert counts(x) == [1, 20, 0, 44]
    again.rebind(n=64)()
    assert counts(x) == [6, 20, 5, 44]


def test_autotuned_kernels_are_bound_with_their_best_configuration(x: np.ndarray) -> None:
    calls: list[int] = []
    configs = [deuteron.Config({"BY": by}, pre_hook=lambda given: calls.append(given["n"])) for by in (3, 4)]
    kernel = deuteron.autotune(configs, ["n"], restore_value=["x"], warmup=0, rep=1)(increment)
    again = kernel.bound(lambda meta: (8,), x, 20)
    assert kernel.best_config in configs
    best = kernel.best_config.kwargs["BY"]
    assert counts(x) == [0, 64]
    calls.clear()
    again()
    again()
    assert calls == [20, 20]
    assert counts(x) == [2 * best, 20, 0, 44]


def test_under_the_interpreter(x: np.ndarray) -> None:
    with knobs.interpret.scope(True):
        again = increment.bound(grid, x, 20)
        assert again() is None
        assert again.rebind(n=40)() is None
    assert counts(x) == [2, 20, 1, 20, 0, 24]
