"""Stand-ins for the worker process, evaluators that have them, and waiting for what becomes of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deuteron.tuner.evaluate.evaluator import LocalEvaluator
from deuteron.tuner.evaluate.processes import Processes
from deuteron.tuner.workloads import Problem, builtin_workload

COMMAND = (sys.executable, "-X", "faulthandler", str(Path(__file__).with_name("stand_in.py")))
STAND_IN_TEMPLATE = (sys.executable, "-X", "faulthandler", str(Path(__file__).with_name("stand_in_template.py")))


def evaluator_of(
    processes: Processes, n: int, kind: str = "cuda", seed: int = 0, timeout: float = 2.0, **more: Any
) -> LocalEvaluator:
    problem = Problem(builtin_workload("vector_add"), {"n": n}, "f32")
    return LocalEvaluator(problem, "cpu", "cpu", kind, {}, seed, timeout=timeout, processes=processes, **more)


def until(done: Callable[[], bool], what: str = "it did not come to that", seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.001)
