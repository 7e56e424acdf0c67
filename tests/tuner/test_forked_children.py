"""Children forked from a template are as programs: in what is open, loaded and around them, and in their threads."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_children import ask, descriptors, is_forked, pid_of, script_nursery, state, template_of
from stand_in_processes import COMMAND, until

from deuteron.tuner.evaluate.child import ChildCrashed, ChildProcess
from deuteron.tuner.evaluate.nursery import Nursery

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere children are started as programs")

LIMIT = {"bytes": 1 << 40}


def test_the_real_template_opens_nothing_and_its_children_are_as_programs() -> None:
    nursery = Nursery()
    with ChildProcess(nursery=nursery) as forked, ChildProcess(nursery=nursery) as sibling, ChildProcess() as program:
        for child in (forked, sibling, program):
            assert child.request("limit", LIMIT, 60.0)["status"] == "ok"
        assert is_forked(forked) and is_forked(sibling) and not is_forked(program)
        template = template_of(nursery)
        assert len(list(Path(f"/proc/{template}/task").iterdir())) == 1
        mapped = Path(f"/proc/{template}/maps").read_text()
        assert "libcuda" not in mapped and "libcupti" not in mapped and "libnvidia" not in mapped
        for child in (forked, sibling):
            # Beside what a program has, a child has the descriptor of the process that it ends with.
            assert descriptors(pid_of(child)) == descriptors(pid_of(program)) + Counter({"anon_inode": 1})
            assert os.getsid(pid_of(child)) == os.getpgid(pid_of(child)) == pid_of(child)
    nursery.close()
    until(lambda: state(template) is None, "the template did not end when nobody could ask it any more")


LOADING = """
import json, sys
from deuteron.compiler import get_device
from deuteron.tuner.evaluate.messages import Compile, Prepare, Race, Screen
from deuteron.tuner.evaluate.session import ChildSession
from deuteron.tuner.evaluate.template import load
from deuteron.tuner.workloads import Problem, builtin_workload

def search(name, dims, target, device):
    spec = builtin_workload(name)
    problem = Problem(spec, dims, "f32")
    default = problem.default(problem.searched(get_device("cpu").properties)[0], "cpu")
    session = ChildSession()
    session.prepare(Prepare(spec, dims, "f32", target, device=device, default=default, seed=1))
    assert session.compile(Compile(default)).status == "ok"
    if device is not None:
        assert session.screen(Screen(default)).status == "ok"
        assert session.race(Race((default, default), 3, 0.01, 1, final=True)).status == "ok"

load()
before = set(sys.modules)
import deuteron.tuner.evaluate.worker
search("matmul", {"M": 32, "N": 32, "K": 32}, "cpu", "cpu")
search("matmul", {"M": 32, "N": 32, "K": 32}, "cuda:90a", None)
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_the_template_loads_what_children_need(tmp_path: Path) -> None:
    """In a process of its own, with nothing in the cache: that would spare it the compiler."""
    environment = {**os.environ, "DEUTERON_HOME": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-P", "-c", LOADING], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    loaded = json.loads(ran.stdout)
    heavy = ("deuteron.", "llvmlite.", "numpy.", "cuda.", "multiprocessing.", "ml_dtypes.")
    assert [name for name in loaded if name.startswith(heavy)] == []


THREADS = """
import numpy as np
rng = np.random.default_rng(0)
a, b = rng.standard_normal((700, 700)), rng.standard_normal((700, 700))
product = a @ b
slow = np.einsum("ik,kj->ij", a, b)
sys.stderr.write(f"{len(os.listdir('/proc/self/task'))} {np.abs(product - slow).max() < 1e-9}\\n")
os._exit(9)
"""


def test_numpy_multiplies_with_as_many_threads_as_in_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenBLAS starts its threads when it is loaded, and a fork has none of them."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)  # Dask leaves them at 1 where a test before this one began a worker
    program = tmp_path / "program.py"
    program.write_text("import os, sys\n" + THREADS)
    with ChildProcess((sys.executable, str(program))) as child, pytest.raises(ChildCrashed) as expected:
        ask(child)
    nursery = script_nursery(tmp_path, "load()", THREADS)
    with ChildProcess(COMMAND, nursery) as child, pytest.raises(ChildCrashed) as found:
        child.request("screen", {}, 60.0)
    nursery.close()
    assert str(found.value) == str(expected.value)
    threads, right = str(found.value).rpartition(": ")[2].split()
    assert right == "True" and (int(threads) > 1 or len(os.sched_getaffinity(0)) == 1)


SURROUNDINGS = """
import hashlib, json, os, resource, signal
limits = [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT")]
umask = os.umask(0)
seen = [os.getcwd(), dict(os.environ), sorted(os.sched_getaffinity(0)), os.nice(0), limits, umask]
seen += [str(signal.getsignal(signal.SIGUSR1)), sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, [])))]
sys.stderr.write(repr(seen)[-1500:] + hashlib.sha256(repr(seen).encode()).hexdigest())
os._exit(9)
"""


def change_variable(restore: pytest.MonkeyPatch, folder: Path) -> None:
    restore.setenv("DEUTERON_MADE_UP", "1")


def change_folder(restore: pytest.MonkeyPatch, folder: Path) -> None:
    restore.chdir(folder)


def change_umask(restore: pytest.MonkeyPatch, folder: Path) -> None:
    os.umask(0o077)


def change_limit(restore: pytest.MonkeyPatch, folder: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (4096 if soft != 4096 and hard != 0 else 0, hard))


def change_signals(restore: pytest.MonkeyPatch, folder: Path) -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def change_mask(restore: pytest.MonkeyPatch, folder: Path) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])


def change_cores(restore: pytest.MonkeyPatch, folder: Path) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


CHANGES = [change_variable, change_folder, change_umask, change_limit, change_signals, change_mask, change_cores]


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    umask = os.umask(0o022)
    os.umask(umask)
    limit = resource.getrlimit(resource.RLIMIT_CORE)
    handler = signal.getsignal(signal.SIGUSR1)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    cores = os.sched_getaffinity(0)
    yield monkeypatch
    os.umask(umask)
    resource.setrlimit(resource.RLIMIT_CORE, limit)
    signal.signal(signal.SIGUSR1, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    os.sched_setaffinity(0, cores)


def test_children_find_what_programs_would_find(tmp_path: Path, restored: pytest.MonkeyPatch) -> None:
    """One change after the other, while there is a template from before it."""
    program = tmp_path / "program.py"
    program.write_text("import os, sys\n" + SURROUNDINGS)
    nursery = script_nursery(tmp_path, "", SURROUNDINGS)

    def seen(child: ChildProcess, forked: bool) -> str:
        with child, pytest.raises(ChildCrashed, match="status 9") as crashed:
            child.send("screen", {})
            assert is_forked(child) == forked
            child.receive(1, time.monotonic() + 60)
        return str(crashed.value)

    known = set()
    templates = set()
    for change in (None, *CHANGES):
        if change is not None:
            change(restored, tmp_path)
        expected = seen(ChildProcess((sys.executable, str(program))), False)
        assert seen(ChildProcess(COMMAND, nursery), True) == expected, change
        known.add(expected)
        templates.add(template_of(nursery))
        assert seen(ChildProcess(COMMAND, nursery), True) == expected
        templates.add(template_of(nursery))
    assert len(known) == len(templates) >= len(CHANGES) + 1 - (len(os.sched_getaffinity(0)) == 1)
    nursery.close()
    for pid in templates:
        until(lambda pid=pid: state(pid) is None, "a template that was given up stayed")
