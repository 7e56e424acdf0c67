"""Cores of processes that prepare beside others."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deuteron.tuner.evaluate.child import ChildProcess
from deuteron.tuner.evaluate.messages import Prepare
from deuteron.tuner.workloads import builtin_workload

PROGRAM = """
import numpy as np
from threadpoolctl import threadpool_info
import deuteron.tuner.evaluate.cores as cores
cores.cuda_device_count = lambda: {gpus}
cores.os.sched_getaffinity = lambda _: range({cores})
cores._PATIENCE_SECONDS = 0.1
def threads():
    return next(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
{measured}
left, right = np.arange(600.0).reshape(20, 30), np.arange(900.0).reshape(30, 30)
assert (left @ right == (left[:, :, None] * right[None]).sum(1)).all()
"""
SHARED = """
cores.share_cores(3)
print(threads())
"""
IN_TURN = """
cores.share_cores(3)
for _ in range(2):
    try:
        with cores.cores_of_all(3, "GPU-1"):
            print(threads())
            raise ValueError
    except ValueError:
        print(threads())
"""


def told(program: str, cache: Path, cores: int, gpus: int = 1) -> list[int]:
    """What the program prints: numbers of threads. OpenBLAS was built for, and started with, at least so many."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "8", "DEUTERON_CACHE_DIR": str(cache)}
    command = [sys.executable, "-P", "-c", PROGRAM.format(cores=cores, gpus=gpus, measured=program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
    assert not done.returncode, done.stderr
    return [int(line) for line in done.stdout.split()]


@pytest.mark.parametrize(("cores", "gpus", "threads"), [(1, 0, 1), (8, 1, 2), (12, 2, 2), (6, 8, 1)])
def test_each_process_has_its_share(tmp_path: Path, cores: int, gpus: int, threads: int) -> None:
    assert told(SHARED, tmp_path, cores, gpus) == [threads]


@pytest.mark.parametrize(("cores", "gpus", "threads"), [(8, 1, [6, 2]), (16, 2, [6, 2]), (1, 1, [1, 1])])
def test_one_process_has_the_cores_of_all_for_a_while(
    tmp_path: Path, cores: int, gpus: int, threads: list[int]
) -> None:
    """Those of one GPU, but a quarter of them, and afterwards its share again."""
    assert told(IN_TURN, tmp_path, cores, gpus) == 2 * threads


def test_who_waits_in_vain_goes_on_with_its_share(tmp_path: Path) -> None:
    (tmp_path / "cores").mkdir()
    with (tmp_path / "cores" / "GPU-1.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert told(IN_TURN, tmp_path, 8) == [2, 2, 2, 2]
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert told(IN_TURN, tmp_path, 8) == [6, 2, 6, 2]


def test_a_file_system_without_locks_is_not_waited_for(tmp_path: Path) -> None:
    broken = """
import errno
def refuses(*_):
    raise OSError(errno.ENOLCK, "no locks")
import fcntl
fcntl.flock = refuses
cores._PATIENCE_SECONDS = 1e6
"""
    assert told(broken + IN_TURN, tmp_path, 8) == [2, 2, 2, 2]


def test_without_a_place_for_the_lock_each_has_its_share(tmp_path: Path) -> None:
    (tmp_path / "cores").write_text("a file where the folder would be")
    assert told(IN_TURN, tmp_path, 8) == [2, 2, 2, 2]


@pytest.mark.parametrize(("target", "niceness"), [("cuda:90a", 5), ("cpu", 0)])
def test_what_compiles_for_gpus_gives_way(target: str, niceness: int) -> None:
    """To processes that a GPU waits for. On a CPU nothing is measured meanwhile."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    spec = builtin_workload("vector_add")
    wanted = Prepare(spec, spec.shapes[0], "f32", target)
    with ChildProcess() as child:
        assert child.request("prepare", wanted.to_json(), 60.0)["status"] == "ok"
        assert child.pid is not None
        assert os.getpriority(os.PRIO_PROCESS, child.pid) == max(own, niceness)
