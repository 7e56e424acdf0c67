"""Schedules that the compiler refuses are in no space."""

from __future__ import annotations

import pytest

from deuteron.compiler.runtime.device import DeviceProperties
from deuteron.tuner.errors import SpaceError
from deuteron.tuner.space import Space
from deuteron.tuner.workloads import Problem, WorkloadSpec

CPU = DeviceProperties("some CPU", "cpu", sm_count=2)
GPU = DeviceProperties("some GPU", "cuda", sm_count=132, shared_bytes_per_block=232448)
TEXT = """
import triton
import triton.language as tl


@triton.jit
def add(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.ACCESS(y + at, tl.load(x + at, mask=at < n), mask=at < n)
"""
WAIT = "while tl.load(y, volatile=True) != 0:\n        pass\n    tl.store"


def space(parameters: dict[str, list[object]], device: DeviceProperties = GPU, access: str = "store") -> Space:
    spec = WorkloadSpec.from_json(
        {
            "kernel": {
                "name": "add",
                "source": TEXT.replace("tl.ACCESS", WAIT if access == "waits" else f"tl.{access}"),
            },
            "dims": ["n"],
            "tensors": [{"name": "x", "shape": ["n"]}, {"name": "y", "shape": ["n"], "role": "output"}],
            "scalars": {"n": "n"},
            "grid": ["cdiv(n, BLOCK)"],
            "space": {"parameters": {"BLOCK": [128, 256], **parameters}},
        }
    )
    return Problem(spec, {"n": 1000}, "f32").searched(device)[0]


def values(found: Space, *names: str) -> set[tuple[object, ...]]:
    return {tuple(config[name] for name in names) for config in found.configurations()}


def test_values_that_are_illegal_by_themselves_are_no_choices() -> None:
    assert values(space({"num_warps": [3, 4, 64, 8]}), "num_warps") == {(4,), (8,)}
    both = {"persistent": [True, False]}
    assert values(space(both), "persistent") == {(True,), (False,)}
    assert values(space(both, access="atomic_add"), "persistent") == {(True,), (False,)}
    assert values(space(both, access="waits"), "persistent") == {(False,)}


def test_values_that_are_illegal_together_are_struck_out() -> None:
    found = space({"num_warps": [4, 16, 32], "maxnreg": [64, 128, 255]})
    assert values(found, "num_warps", "maxnreg") == {(4, 64), (4, 128), (4, 255), (16, 64), (16, 128), (32, 64)}


def test_options_without_effect_are_held_and_not_judged() -> None:
    found = space({"num_warps": [16, 4], "maxnreg": [255, 64], "persistent": [True]}, CPU, "waits")
    assert values(found, "num_warps", "maxnreg", "persistent") == {(16, 255, True)}


def test_an_option_without_a_possible_value_says_why() -> None:
    with pytest.raises(SpaceError, match=r"no value of persistent is possible: .* reads from memory"):
        space({"persistent": [True]}, access="waits")
    with pytest.raises(SpaceError, match="no value of num_warps is possible: num_warps = 3"):
        space({"num_warps": [3]})
