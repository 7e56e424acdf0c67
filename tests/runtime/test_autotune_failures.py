"""Configurations that cannot run: passed over where another one can, and listed where none can."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from autotuning import BLOCKS, Stopwatch, grid, tuned

from deuteron import Config
from deuteron.compiler.errors import DeuteronError, LaunchError, OutOfResources
from deuteron.compiler.runtime.tuning.results import FAILED


def test_failing_configurations_score_infinity() -> None:
    configs = [Config({"BLOCK": 512}), *BLOCKS]
    kernel = tuned(configs, Stopwatch(float))
    kernel[grid](np.zeros(300, np.float32), 300)
    assert kernel.best_config == BLOCKS[0]
    assert kernel.configs_timings[configs[0]] == FAILED
    assert "512 is refused" in kernel.failures[configs[0]]


@pytest.mark.parametrize(
    ("name", "value"), [("num_stages", -1), ("maxnreg", 8), ("maxnreg", 257), ("num_warps", 3), ("num_ctas", 3)]
)
def test_values_that_no_kernel_can_have_are_passed_over(name: str, value: int) -> None:
    impossible = Config({"BLOCK": 128}, **{name: value})
    kernel = tuned([impossible, *BLOCKS], Stopwatch(float))
    kernel[grid](np.zeros(300, np.float32), 300)
    assert kernel.best_config == BLOCKS[0] and list(kernel.failures) == [impossible]
    assert f"{name} = {value}" in kernel.failures[impossible]


def test_values_that_triton_takes_are_tried() -> None:
    taken = [Config({"BLOCK": 64}, num_stages=0), Config({"BLOCK": 128}, num_stages=100), Config({"BLOCK": 256}, 2048)]
    kernel = tuned(taken, Stopwatch(float))
    kernel[grid](np.zeros(300, np.float32), 300)
    assert set(kernel.configs_timings) == set(taken) and not kernel.failures


def test_the_hook_after_a_configuration_is_told_why_it_cannot_be_compiled() -> None:
    told: list[object] = []
    watch = Stopwatch(float)
    configs = [Config({"BLOCK": 512}), Config({"BLOCK": 128})]
    fill = tuned(configs, watch, post_hook=lambda arguments, exception: told.append((arguments["BLOCK"], exception)))
    fill[grid](np.zeros(8, np.float32), 8)
    assert fill.best_config == configs[1] and watch.blocks == [128]
    (block, error), *others = told
    assert block == 512 and "512 is refused" in str(error) and set(others) == {(128, None)}


def test_when_all_fail_each_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    from deuteron.compiler.runtime.launch import launcher

    def refuse(variant: Any, known: Any) -> Any:
        raise OutOfResources("shared memory", variant.constants["BLOCK"], 10)

    monkeypatch.setattr(launcher, "compile_if_fitting", refuse)
    kernel = tuned(BLOCKS, Stopwatch(float))
    with pytest.raises(LaunchError) as caught:
        kernel[grid](np.zeros(300, np.float32), 300)
    text = str(caught.value)
    assert "fill: none of 3 configurations can run" in text
    for block in (64, 128, 256):
        assert f"BLOCK: {block}, num_warps: 4" in text
        assert f"out of resource: shared memory, Required: {block}, Hardware limit: 10" in text


def test_wrong_kernels_are_not_hidden() -> None:
    kernel = tuned([Config({"BLOCK": 100}), *BLOCKS], Stopwatch(float))
    with pytest.raises(DeuteronError, match="not a power of two"):
        kernel[grid](np.zeros(300, np.float32), 300)
