"""Cores of processes that prepare beside others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np
from threadpoolctl import threadpool_info
import deuteron.tuner.evaluate.cores as cores
cores.cuda_device_count = lambda: {gpus}
cores.os.sched_getaffinity = lambda _: range({cores})
cores.share_cores(3)
print([pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"])
left, right = np.arange(600.0).reshape(20, 30), np.arange(900.0).reshape(30, 30)
assert (left @ right == (left[:, :, None] * right[None]).sum(1)).all()
"""


@pytest.mark.parametrize(("cores", "gpus", "threads"), [(1, 0, 1), (8, 1, 2), (12, 2, 2), (6, 8, 1)])
def test_each_process_has_its_share(cores: int, gpus: int, threads: int) -> None:
    """Of the cores here no more than there are: OpenBLAS was built for, and started with, so many threads."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "8"}
    command = [sys.executable, "-P", "-c", PROGRAM.format(cores=cores, gpus=gpus)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
    assert done.stdout.strip() == f"[{threads}]", done.stderr
