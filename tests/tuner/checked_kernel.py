"""A kernel whose configurations are right or wrong, and checkers of it on the CPU."""

from __future__ import annotations

import itertools
from collections.abc import Container
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import pytest

from deuteron.compiler.runtime.cpu.device import CpuDevice
from deuteron.compiler.runtime.device import DeviceProperties
from deuteron.compiler.runtime.devices import get_device
from deuteron.tuner import Problem, resolve_workload
from deuteron.tuner.evaluate.check import Checker
from deuteron.tuner.evaluate.compilation import compile_variant
from deuteron.tuner.space import Configuration

TEXT = """
import deuteron as triton
import deuteron.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, WRONG: tl.constexpr, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = o < n
    if WRONG == 1:
        mask = mask & (o != 3)
    y = tl.load(x_ptr + o, mask=mask) * 2
    if WRONG == 2:
        y += 0.001
    if WRONG != 3:
        tl.store(y_ptr + o, y, mask=mask)


workload = {
    "dims": ["n"],
    "tensors": [{"name": "x_ptr", "shape": ["n"]}, {"name": "y_ptr", "shape": ["n"], "role": "output"}],
    "scalars": {"n": "n"},
    "grid": ["cdiv(n, BLOCK)"],
    "space": {"parameters": {"WRONG": [0, 1, 2, 3], "BLOCK": [64]}},
}
"""


def checker_of(
    problem: Problem,
    seed: int = 1,
    kind: Literal["cpu", "cuda"] = "cpu",
    default: Configuration = MappingProxyType({"WRONG": 0, "BLOCK": 64}),
) -> Checker:
    """A checker whose default is the right configuration, on the CPU; which may be said to be a GPU."""
    device = get_device("cpu")
    if kind == "cuda":
        device = CpuDevice()
        device.properties = DeviceProperties("fake", "cuda", memory_bytes=1 << 34)

    def compiled(config: Configuration) -> object:
        variant = problem.variant(config)
        return compile_variant(problem, variant, device.target), variant

    return Checker(problem, device, seed, default, compiled)  # type: ignore[arg-type]


def spoiling(tmp_path: Path) -> tuple[Problem, Configuration, Configuration]:
    """A problem, a configuration that is right, and one that gives the right result and writes into the input."""
    text = TEXT.replace(
        "    if WRONG != 3:\n",
        "    if WRONG == 4:\n        tl.store(x_ptr + o, y + 1, mask=mask)\n    if WRONG != 3:\n",
    )
    (tmp_path / "spoiling.py").write_text(text)
    problem = Problem(resolve_workload(f"{tmp_path / 'spoiling.py'}:kernel"), {"n": 1000}, "f32")
    right, spoils = ({"WRONG": wrong, "BLOCK": 64} for wrong in (0, 4))
    return problem, right, spoils


def goes_wrong(monkeypatch: pytest.MonkeyPatch, checker: Checker, launches: Container[int]) -> None:
    """From now on these launches of a checker, counted from 0, leave an element of the output out."""
    right, count = checker.launch, itertools.count()
    monkeypatch.setattr(
        checker, "launch", lambda config: right({**config, "WRONG": int(next(count) in launches)} | {"BLOCK": 64})
    )
