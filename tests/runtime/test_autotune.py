"""Autotuning and heuristics, on the CPU target with times that the tests decide."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from autotuning import BLOCKS, Stopwatch, fill_kernel, grid, tuned

import deuteron
import deuteron.language as tl
from deuteron import Config
from deuteron.compiler import knobs
from deuteron.compiler.errors import LaunchError
from deuteron.compiler.runtime.tuning.results import FAILED, TuningResults


def test_the_fastest_wins_and_is_kept_per_key() -> None:
    watch = Stopwatch(lambda block: abs(block - 128))
    kernel = tuned(BLOCKS, watch)
    x = np.zeros(300, np.float32)
    kernel[grid](x, 300)
    assert kernel.best_config == BLOCKS[1]
    assert watch.blocks == [64, 128, 256]
    assert kernel.configs_timings[BLOCKS[0]] == (64.0, 64.0, 64.0)
    before = x.copy()
    kernel[grid](x, 300)
    assert watch.blocks == [64, 128, 256]
    np.testing.assert_array_equal(x, before + 1)
    kernel[grid](x, 100)
    assert watch.blocks == [64, 128, 256] * 2
    kernel[grid](np.zeros(300, np.float64), 300)  # another dtype is another key
    assert len(kernel.cache) == 3


def test_a_launch_that_was_seen_is_told_from_others() -> None:
    """Repeated launches take a shorter way to their key, and are told apart by all that the key goes by."""
    watch = Stopwatch(lambda block: float(block))
    kernel = tuned([Config({"BLOCK": b}) for b in (8, 16)], watch)
    searches = []

    def launch(x: Any, n: object, **more: object) -> None:
        before = len(watch.blocks)
        kernel[(4,)](x, n, **more)
        searches.append(len(watch.blocks) > before)

    x, y = np.zeros(8, np.float32), np.zeros(8, np.int32)
    for _ in range(2):
        launch(x, 1)
        launch(y, 1)
        launch(x, True)
        launch(x, 7, ADD=2)
        launch(x, 7)
    assert searches == [True, True, False, True, False] + [False] * 5
    kernel.cache.clear()
    launch(x, 1)
    assert searches[-1]
    kernel.cache[kernel.tuning_key({"x": x, "n": 1})] = kernel.configs[1]
    launch(x, 1)
    assert kernel.best_config is kernel.configs[1]
    with pytest.raises(LaunchError, match="BLOCK is given in the launch"):
        launch(x, 1, BLOCK=8)
    with pytest.raises(LaunchError, match="BLOCK is given in the launch"):
        launch(x, 1, BLOCK=8)


def test_without_do_bench_medians_decide() -> None:
    calls: list[int] = []

    def slow(arguments: dict[str, Any]) -> None:
        calls.append(arguments["BLOCK"])
        time.sleep({64: 0.004, 128: 0.0005, 256: 0.004}[arguments["BLOCK"]])

    configs = [Config(c.kwargs, pre_hook=slow) for c in BLOCKS]
    kernel = deuteron.autotune(configs, ["n"], warmup=1, rep=20)(fill_kernel())
    kernel[grid](np.zeros(300, np.float32), 300)
    assert kernel.best_config is configs[1]
    rounds = calls[-40:-1]
    assert rounds.count(128) >= rounds.count(64)  # the slow ones are given up early
    median, low, high = kernel.configs_timings[configs[0]]
    assert 3.5 < low <= median <= high


def test_arrays_are_reset_between_launches() -> None:
    watch = Stopwatch(float)
    x = np.full(300, 5, np.float32)
    tuned(BLOCKS, watch, restore_value=["x"])[grid](x, 300)
    assert set(x) == {6.0}
    y = np.full(300, 5, np.float32)
    tuned(BLOCKS, watch, reset_to_zero=["x"])[grid](y, 300)
    assert set(y) == {1.0}
    z = deuteron.get_device("cpu").array(np.full(300, 5, np.float32))
    tuned(BLOCKS, watch, restore_value=["x"])[grid](z, 300)
    assert set(z.to_numpy()) == {6.0}


def test_pruning() -> None:
    seen: list[Any] = []

    def early(configs: list[Config], arguments: dict[str, Any], **kwargs: Any) -> list[Config]:
        seen.append((len(configs), arguments, kwargs))
        return [c for c in configs if c.kwargs["BLOCK"] != 64]

    def model(n: int, BLOCK: int, num_warps: int, **_: Any) -> float:
        assert (n, num_warps) == (300, 4)
        return -BLOCK

    watch = Stopwatch(float)
    more = [*BLOCKS, Config({"BLOCK": 1024})]
    prune: dict[str, Any] = {"early_config_prune": early, "perf_model": model, "top_k": 2}
    kernel = tuned(more, watch, prune_configs_by=prune)
    x = np.zeros(300, np.float32)
    kernel[grid](x, 300, ADD=1)
    assert seen == [(4, {"x": x, "n": 300}, {"ADD": 1})]
    assert watch.blocks == [1024, 256]
    kernel[grid](x, n=300, ADD=2)  # the same key: no other search
    kernel.warmup(x, n=300, ADD=2)
    assert seen[1:] == [(4, {"x": x}, {"n": 300, "ADD": 2})]
    share = tuned(more, Stopwatch(float), prune_configs_by={"perf_model": model, "top_k": 0.25})
    share[grid](np.zeros(300, np.float32), 300)
    assert share.best_config == more[-1]
    nothing = tuned(BLOCKS, watch, prune_configs_by={"early_config_prune": lambda *a, **k: []})
    with pytest.raises(LaunchError, match="`early_config_prune` should return at least one config"):
        nothing[grid](np.zeros(300, np.float32), 300)
    with pytest.raises(LaunchError, match="no entry 'early_prune'"):
        tuned(BLOCKS, watch, prune_configs_by={"early_prune": early})


def test_a_model_is_asked_only_where_it_leaves_some_out() -> None:
    """As in Triton, whose kernels may have models that know few of their shapes."""
    asked: list[int] = []

    def model(BLOCK: int, **_: Any) -> float:
        asked.append(BLOCK)
        return -BLOCK

    def early(configs: list[Config], arguments: dict[str, Any], **kwargs: Any) -> list[Config]:
        return configs[:-1]

    every = [config.kwargs["BLOCK"] for config in BLOCKS]
    for top_k in (2, 3, 1.0):
        watch = Stopwatch(float)
        tuned(BLOCKS, watch, prune_configs_by={"early_config_prune": early, "perf_model": model, "top_k": top_k})[grid](
            np.zeros(300, np.float32), 300
        )
        assert (asked, watch.blocks) == ([], every[:-1])
    watch = Stopwatch(float)
    tuned(BLOCKS, watch, prune_configs_by={"perf_model": model, "top_k": 2})[grid](np.zeros(300, np.float32), 300)
    assert (asked, watch.blocks) == (every, sorted(every)[:0:-1])


def test_none_is_nothing_to_reset() -> None:
    @deuteron.jit
    def optional(x, bias, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        y = tl.load(x + i, mask=i < n) + 1
        if bias is not None:
            y += tl.load(bias + i, mask=i < n)
        tl.store(x + i, y, mask=i < n)

    x = np.full(300, 5, np.float32)
    for options in (
        {"restore_value": ["x", "bias"], "reset_to_zero": None},
        {"restore_value": None, "reset_to_zero": ["x", "bias"]},
    ):
        kernel = deuteron.autotune(BLOCKS, ["n"], do_bench=lambda call, quantiles: call() and 1.0, **options)(optional)
        kernel[grid](x, None, 300)
        assert set(x) == {6.0 if options["restore_value"] else 1.0}


def test_candidates_compile_once_and_in_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    from deuteron.compiler.runtime.launch import launcher

    compiled: list[tuple[int, int]] = []
    compile_if_fitting = launcher.compile_if_fitting

    def note(variant: Any, known: Any) -> Any:
        compiled.append((variant.constants["BLOCK"], threading.get_ident()))
        return compile_if_fitting(variant, known)

    monkeypatch.setattr(launcher, "compile_if_fitting", note)
    kernel = deuteron.autotune(BLOCKS, ["n"], warmup=0.1, rep=0.1)(
        deuteron.heuristics({"ADD": lambda args: args["BLOCK"]})(fill_kernel())
    )
    kernel[grid](np.zeros(300, np.float32), 300)
    assert sorted(block for block, _ in compiled) == [64, 128, 256]
    assert threading.get_ident() not in {thread for _, thread in compiled}


def test_hooks_of_configurations_shape_what_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook may change what an argument is, such as the block of a descriptor; what it leaves is compiled ahead."""
    from deuteron.compiler.runtime.launch import launcher

    compiled: list[str] = []
    compile_if_fitting = launcher.compile_if_fitting
    monkeypatch.setattr(
        launcher,
        "compile_if_fitting",
        lambda variant, known: compiled.append(str(variant.signature["x"])) or compile_if_fitting(variant, known),
    )
    x = deuteron.get_device("cpu").array(np.zeros(300, np.float32))

    def widen(arguments: dict[str, Any]) -> None:
        arguments["x"].__init__(np.zeros(300, np.float64))

    configs = [Config(c.kwargs, pre_hook=widen) for c in BLOCKS]
    deuteron.autotune(configs, ["n"], warmup=0.1, rep=0.1)(fill_kernel())[grid](x, 300)
    assert len(compiled) == 3
    assert all(text.startswith("*f64") for text in compiled)


@pytest.mark.parametrize("option", ["reset_to_zero", "restore_value"])
def test_unknown_names_are_refused(option: str) -> None:
    kernel = tuned(BLOCKS, Stopwatch(float), **{option: ["m"]})
    with pytest.raises(LaunchError, match=f"autotune of fill: {option} names 'm'"):
        kernel[grid](np.zeros(300, np.float32), 300)


def test_conflicting_values_are_refused() -> None:
    with pytest.raises(LaunchError, match="BLOCK is given in the launch and by"):
        tuned(BLOCKS, Stopwatch(float))[grid](np.zeros(300, np.float32), 300, BLOCK=64)


def test_results_are_kept_per_configuration(private_cache: Path) -> None:
    def search(configs: list[Config], kernel: deuteron.JITFunction) -> tuple[Any, list[int]]:
        ran: list[int] = []

        def bench(call: Callable[[], object], *, quantiles: Sequence[float]) -> list[float]:
            launched: Any = call()
            block = launched.variant.constants["BLOCK"]
            ran.append(block)
            return [float(block)] * 3

        made = deuteron.autotune(configs, ["n"], do_bench=bench)(kernel)
        made[grid](np.zeros(300, np.float32), 300)
        return made, ran

    with knobs.cache_autotuning.scope(True):
        assert search(BLOCKS, fill_kernel())[1] == [64, 128, 256]
        assert search(BLOCKS, fill_kernel())[1] == []
        with knobs.cpu_threads.scope(knobs.cpu_threads.get() + 3):
            assert search(BLOCKS, fill_kernel())[1] == [64, 128, 256]
        more, ran = search([*BLOCKS, Config({"BLOCK": 32})], fill_kernel())
        assert ran == [32]
        assert more.best_config == Config({"BLOCK": 32})
        assert more.configs_timings[BLOCKS[2]] == (256.0, 256.0, 256.0)
    assert search(BLOCKS, fill_kernel())[1] == [64, 128, 256]


def test_kept_results_remember_who_was_behind() -> None:
    """A lucky median of few launches does not beat those that were timed to the end, unless they are gone."""

    def refuse(call: Callable[[], object], *, quantiles: Sequence[float]) -> list[float]:
        raise AssertionError("all of it is kept")

    kernel, x = fill_kernel(), np.zeros(300, np.float32)
    all_, some = (
        deuteron.autotune(configs, ["n"], do_bench=refuse, cache_results=True)(kernel)
        for configs in (BLOCKS, BLOCKS[1:])
    )
    results = TuningResults(kernel, all_.tuning_key({"x": x, "n": 300}), deuteron.get_device("cpu"))
    results.remember({c: (t, t, t) for c, t in zip(BLOCKS, (1.0, 0.9, 2.0), strict=True)}, BLOCKS[:1])
    all_[grid](x, 300)
    assert all_.best_config == BLOCKS[0]
    some[grid](x, 300)
    assert some.best_config == BLOCKS[1]


def test_what_fails_is_not_kept_and_equal_keys_of_other_types_are_others() -> None:
    cpu, kernel = deuteron.get_device("cpu"), fill_kernel()
    results = TuningResults(kernel, (1, "f32"), cpu)
    results.remember({BLOCKS[0]: (1.0, 1.0, 1.0), BLOCKS[1]: FAILED}, BLOCKS[:1])
    assert results.recall(BLOCKS) == ({BLOCKS[0]: (1.0, 1.0, 1.0)}, BLOCKS[:1])
    for key in (True, 1.0):
        assert TuningResults(kernel, (key, "f32"), cpu).recall(BLOCKS) == ({}, [])


def test_printing(capsys: pytest.CaptureFixture[str]) -> None:
    with knobs.print_autotuning.scope(True):
        tuned(BLOCKS, Stopwatch(float))[grid](np.zeros(300, np.float32), 300)
    said = capsys.readouterr().out
    assert "Autotuning kernel fill" in said
    assert "best config selected: BLOCK: 64, num_warps: 4, num_stages: 3" in said


def test_heuristics_see_arguments_and_each_other() -> None:
    rules = {
        "BLOCK": lambda args: deuteron.next_power_of_2(args["n"]),
        "ADD": lambda args: args["BLOCK"],
    }
    kernel = deuteron.heuristics(rules)(fill_kernel())
    x = np.zeros(100, np.float32)
    kernel[grid](x, 100)
    assert set(x) == {129.0}
    seen: list[int] = []
    warps = deuteron.heuristics({**rules, "num_warps": lambda args: 8 if args["BLOCK"] > 64 else 4})(fill_kernel())
    for n in (100, 30):
        seen.append(warps[grid](np.zeros(n, np.float32), n).metadata.num_warps)
    assert seen == [8, 4]
    wrong = deuteron.heuristics({"BLOK": lambda args: 1})(fill_kernel())
    with pytest.raises(LaunchError, match="'BLOK' is not a parameter or schedule option") as caught:
        wrong[grid](x, 100)
    assert caught.value.hint == "did you mean 'BLOCK'?"


def test_a_key_that_is_no_parameter_is_passed_over_and_said() -> None:
    """Kernels of libraries have keys from earlier versions; Triton passes over them."""
    x, watch = np.zeros(100, np.float32), Stopwatch(float)
    kernel = deuteron.autotune(BLOCKS, ["n", "m"], do_bench=watch)(fill_kernel())
    with pytest.warns(UserWarning, match="key names 'm', which is not a parameter"):
        kernel[grid](x, 100)
    with pytest.warns(UserWarning, match="'m'"):
        kernel[grid](x, 50)
    assert len({key[0] for key in kernel.cache}) == 2


def test_decorators_chain_both_ways() -> None:
    rules = {"ADD": lambda args: args["n"]}
    watch = Stopwatch(float)
    x = np.zeros(100, np.float32)
    options: dict[str, Any] = {"restore_value": ["x"], "do_bench": watch, "pre_hook": watch.note}
    inner = deuteron.autotune(BLOCKS, ["n"], **options)(deuteron.heuristics(rules)(fill_kernel()))
    inner[grid](x, 100)
    assert set(x) == {101.0}
    outer = deuteron.heuristics(rules)(deuteron.autotune(BLOCKS, ["n"], **options)(fill_kernel()))
    outer[grid](x, 100)
    assert set(x) == {202.0}
    assert outer.fn.best_config == BLOCKS[0]
    assert outer.arg_names == ["x", "n", "BLOCK", "ADD"]
    assert repr(outer) == "<Heuristics of fill>"


def test_config_hooks_run_before_the_chosen_launch() -> None:
    seen: list[int] = []
    config = Config({"BLOCK": 64}, num_warps=8, pre_hook=lambda a: seen.append(a["num_warps"]))
    kernel = deuteron.autotune([config], ["n"])(fill_kernel())
    kernel[grid](np.zeros(300, np.float32), 300)
    assert seen == [8]


def test_warmup_compiles_every_configuration() -> None:
    kernel = tuned(BLOCKS, Stopwatch(float))
    made = kernel.warmup("*f32", 300, grid=(1,))
    assert [k.variant.constants["BLOCK"] for k in made] == [64, 128, 256]


def test_the_interpreter_is_not_timed() -> None:
    watch = Stopwatch(float)
    kernel = tuned(BLOCKS, watch)
    x = np.zeros(100, np.float32)
    with knobs.interpret.scope(True):
        kernel[grid](x, 100)
        made_here = tuned(BLOCKS, watch)
    assert set(x) == {1.0}
    made_here[grid](x, 100)  # a kernel made under the interpreter stays there
    assert set(x) == {2.0}
    assert watch.blocks == []


def test_configs_compare_by_value() -> None:
    assert Config({"A": 1}) == Config({"A": 1})
    assert len({Config({"A": 1}), Config({"A": True}), Config({"A": 1}, num_warps=8)}) == 3


def test_compile_takes_the_kernel_out_of_its_decorators() -> None:
    kernel = deuteron.heuristics({"ADD": lambda args: 1})(tuned(BLOCKS, Stopwatch(float)))
    made = deuteron.compile(kernel, {"x": "*f32", "n": "i32"}, {"BLOCK": 64}, stop_after="tile")
    assert made.name == "fill"


def test_a_class_that_extends_it_as_libraries_do() -> None:
    """Positional arguments in Triton's order, keys in its form, and the parts of a search one by one."""
    seen: list[tuple[object, ...]] = []

    class Kept(deuteron.compiler.Autotuner):
        def run(self, *args: object, **kwargs: Any) -> object:
            self.nargs = dict(zip(self.arg_names, args, strict=False))
            times = {config: self._bench(*args, config=config, **kwargs) for config in self.prune_configs({"n": 300})}
            self.pre_hook({**self.nargs}, reset_only=True)
            seen.append(tuple(times))
            assert all(0 < low <= median <= high for median, low, high in times.values())
            key = (300, "float32", "cpu")
            self.cache[key] = BLOCKS[1]
            return super().run(*args, **kwargs)

    kernel = fill_kernel()
    prune = {"early_config_prune": lambda configs, named, **kwargs: [c for c in configs if named["n"] == 300][:2]}
    tuner = Kept(kernel, kernel.arg_names, BLOCKS, ["n"], None, ["x"], None, None, prune, 1, 1, False)
    x = np.zeros(300, np.float32)
    tuner[grid](x, 300)
    assert seen == [tuple(BLOCKS[:2])] and tuner.best_config == BLOCKS[1]
    assert not tuner.user_defined_pre_hook and tuner.configs_top_k == 1.0 and tuner.perf_model is None


def test_what_to_reset_is_zero_after_the_default_hook() -> None:
    tuner = deuteron.autotune(BLOCKS, ["n"], reset_to_zero=["x"])(fill_kernel())
    x = np.ones(3, np.float32)
    tuner.pre_hook({"x": x, "n": 3})
    assert not x.any()
