"""What a worker loads before its first job."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
from dataclasses import dataclass
from deuteron.compiler.runtime.device import DeviceProperties
from deuteron.tuner import JobSpec, builtin_workload
from deuteron.tuner.plan import SearchPlan
from deuteron.tuner.strategies import make_strategy
from deuteron.tuner.study import warm_up

@dataclass
class Gpu:
    properties = DeviceProperties(
        "a GPU", "cuda", sm_count=132, compute_capability=(9, 0), shared_bytes_per_block=232448
    )
    target = "cuda:90a"

warm_up(Gpu())
loaded = set(sys.modules)
for name in ("softmax", "matmul"):
    spec = builtin_workload(name)
    job = JobSpec(spec, spec.shapes[-1:], spec.dtypes[-1:], "cuda:0")
    plan = SearchPlan.of(next(job.problems()), Gpu())
    strategy = make_strategy(job.strategy, plan.space, 3)
    assert strategy.ask() is not None
print(sorted(set(sys.modules) - loaded))
"""


def test_nothing_is_left_for_the_first_job_to_load() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", CODE], capture_output=True, text=True, timeout=120)
    assert done.stdout == "[]\n", done.stdout + done.stderr
