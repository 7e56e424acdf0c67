"""Mistakes in calls from Python: errors of the one tree, which are what Triton raises, too, and say what was wrong."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import fake_torch
import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron import Config, errors
from deuteron.compiler.runtime.launch.hooks import add_launch_hook, remove_launch_hook
from deuteron.testing import do_bench
from deuteron.tuner import tuned
from deuteron.tuner.errors import BundleError
from deuteron.tuner.records import RecordIndex


def without_metadata(*launch: object) -> None:
    """A ``launch_metadata`` that forgets to return."""


@deuteron.jit(launch_metadata=without_metadata)
def fill(x, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, 1, mask=i < n)


X = np.zeros(64, np.float32)
TWO = [Config({"BLOCK": 16}), Config({"BLOCK": 32})]


def autotuned(configs: Any = TWO, key: Any = (), **options: Any) -> object:
    return deuteron.autotune(configs, key, **options)(fill)[(1,)](X, 64)


@pytest.mark.parametrize(
    ("launch", "kind", "message"),
    [
        (lambda: fill[(1,)](X, BLOCK=16), TypeError, "fill: the argument 'n' is missing"),
        (lambda: fill[(1,)](X, 5, 16, 7), TypeError, "fill takes 3 arguments, got 1 more"),
        (lambda: fill.bound((1,), X, 5, 16, 7), TypeError, "fill takes 3 arguments, got 1 more"),
        (lambda: fill.specialized((X, 5), {"n": 5, "BLOCK": 16}), TypeError, "the argument 'n' is given twice"),
        (lambda: fill[(1,)](X, 5, BLOCK=16, num_wraps=4), KeyError, "no argument 'num_wraps'\nhint: did you mean"),
        (lambda: fill.warmup(X, 5, BLOK=16, grid=(1,)), KeyError, "no argument 'BLOK'\nhint: did you mean 'BLOCK'"),
        (lambda: autotuned([Config({"BLOK": 16}), Config({"BLOK": 32})]), KeyError, "did you mean 'BLOCK'"),
        (lambda: fill(X, 5, 16), RuntimeError, "fill is called, and .*\nhint: launch it on a grid: fill"),
    ],
)
def test_arguments_of_launches(launch: Callable[[], object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        launch()
    assert isinstance(caught.value, errors.DeuteronError)


def test_arrays_that_cannot_be_read() -> None:
    class Sparse(fake_torch.Tensor):
        def data_ptr(self) -> int:
            raise RuntimeError("no storage")

    with pytest.raises(errors.UnreadableArgument, match="fill: argument 'x': no storage") as caught:
        fill[(1,)](Sparse(X), 64, BLOCK=16)
    assert isinstance(caught.value, RuntimeError)
    for protocol, given in (("__cuda_array_interface__", {"shape": (4,)}), ("__array_interface__", "nonsense")):
        with pytest.raises(errors.LaunchError, match=f"argument 'x': .* the protocol of {protocol}"):
            fill[(1,)](SimpleNamespace(**{protocol: given}), 64, BLOCK=16)


def test_launch_metadata_that_says_nothing() -> None:
    read = SimpleNamespace(enter=lambda event: event.metadata(), exit=lambda event: None)
    add_launch_hook(read)
    try:
        with pytest.raises(errors.ArgumentMismatch, match="fill: its launch_metadata returned None"):
            fill[(1,)](X, 64, BLOCK=16)
    finally:
        remove_launch_hook(read)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Config([16]), r"what a Config sets is \[16\]"),  # type: ignore[arg-type]
        (lambda: Config({1: 16}), "what a Config sets has 1"),  # type: ignore[dict-item]
        (lambda: autotuned([{"BLOCK": 16}]), "autotune of fill: configs has {'BLOCK': 16}"),
        (lambda: autotuned(5), "autotune of fill: configs is 5"),
        (lambda: autotuned(key=[0]), "autotune of fill: key has 0\nhint: give a list of names of parameters"),
        (lambda: autotuned(reset_to_zero=[0]), "autotune of fill: reset_to_zero has 0"),
        (lambda: autotuned(prune_configs_by=[1]), r"autotune of fill: prune_configs_by is \[1\]"),
        (
            lambda: autotuned(prune_configs_by={"early_config_prune": lambda configs, named, **rest: None}),
            "autotune of fill: what early_config_prune returned is None",
        ),
        (
            lambda: autotuned(prune_configs_by={"perf_model": lambda **arguments: None, "top_k": 1}),
            "autotune of fill: what perf_model returned is None",
        ),
        (
            lambda: autotuned(prune_configs_by={"perf_model": lambda **arguments: 1.0, "top_k": 1.5}),
            "autotune of fill: top_k is 1.5\nhint: give a share up to 1.0, or a number",
        ),
        (lambda: autotuned(do_bench=lambda call, quantiles: None), "timing gave None"),
        (lambda: autotuned(rep="long"), "autotune of fill: rep is 'long'"),
        (lambda: deuteron.heuristics({"BLOCK": 16})(fill), "heuristics of fill has 16 for 'BLOCK'"),  # type: ignore[dict-item]
        (lambda: deuteron.heuristics(["BLOCK"])(fill), r"heuristics of fill is \['BLOCK'\]"),  # type: ignore[arg-type]
        (lambda: do_bench(int, quantiles=0.5), "quantiles is 0.5"),  # type: ignore[arg-type]
        (lambda: do_bench(int, quantiles=["a"]), "a quantile is 'a'"),  # type: ignore[list-item]
        (lambda: do_bench(int, rep=float("nan")), "rep is nan"),
    ],
)
def test_what_tuning_is_given(call: Callable[[], object], message: str) -> None:
    with pytest.raises(errors.ArgumentMismatch, match=message) as caught:
        call()
    assert isinstance(caught.value, TypeError)


def bare(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1)


@pytest.mark.parametrize(
    "decorate",
    [
        deuteron.autotune(TWO, []),
        deuteron.heuristics({"BLOCK": lambda arguments: 16}),
        lambda function: tuned(function, RecordIndex(())),
    ],
)
def test_functions_above_which_jit_was_forgotten(decorate: Any) -> None:
    """They were an AttributeError of the decorator, or of a launch."""
    with pytest.raises(errors.LaunchError, match="bare is a plain function, and no kernel\nhint: put @jit above it"):
        decorate(bare)


@pytest.mark.parametrize("option", ["reset_to_zero", "restore_value"])
def test_numbers_have_no_contents(option: str) -> None:
    with pytest.raises(errors.LaunchError, match=f"autotune of fill: {option} names 'n', but .*int 64 cannot be"):
        autotuned(**{option: ["n"]})


def test_errors_of_heuristics_say_whose_they_are() -> None:
    kernel = deuteron.heuristics({"BLOCK": lambda arguments: arguments["Q"]})(fill)
    with pytest.raises(KeyError, match="'Q'") as caught:
        kernel[(1,)](X, 64)
    assert caught.value.__notes__ == ["in the heuristics of fill, in what gives 'BLOCK'"]


def test_what_is_compiled_ahead_of_time() -> None:
    types = {"x": "*f32", "n": "i32"}
    with pytest.raises(
        errors.SignatureError, match="fill has no parameter 0\nhint: its parameters by name: x, n, BLOCK"
    ):
        deuteron.compile(fill, {0: "*f32"}, {"BLOCK": 16})  # type: ignore[dict-item]
    with pytest.raises(errors.SignatureError, match=r"the constexprs of fill are \[16\]"):
        deuteron.compile(fill, types, [16])  # type: ignore[arg-type]


def test_a_bundle_that_is_not_named() -> None:
    with pytest.raises(BundleError, match="no bundle is named: cache = None"):
        tuned(fill, None)  # type: ignore[arg-type]
    with pytest.raises(BundleError, match="cannot read the bundle a\0b: embedded null byte"):
        tuned(fill, "a\0b")
