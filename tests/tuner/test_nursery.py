"""Children forked from a template: the same as programs, whatever is killed, and nothing is left of them."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deuteron.tuner.evaluate import nursery as module
from deuteron.tuner.evaluate.child import ChildCrashed, ChildProcess
from deuteron.tuner.evaluate.nursery import Forked, Nursery
from deuteron.tuner.evaluate.started import StartedProgram

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere children are started as programs")

COMMAND = (sys.executable, "-X", "faulthandler", str(Path(__file__).with_name("stand_in.py")))
STAND_IN_TEMPLATE = (sys.executable, "-X", "faulthandler", str(Path(__file__).with_name("stand_in_template.py")))
LIMIT = {"bytes": 1 << 40}


@pytest.fixture
def own() -> Iterator[Nursery]:
    """A nursery for one test, whose template may be killed."""
    made = Nursery((*STAND_IN_TEMPLATE, "30"))
    yield made
    made.close()


def ask(child: ChildProcess, deed: str = "ok") -> dict[str, object]:
    return child.request("screen", {"config": {"deed": deed}}, 60.0)


def pid_of(child: ChildProcess) -> int:
    assert child.pid is not None
    return child.pid


def is_forked(child: ChildProcess) -> bool:
    return isinstance(child._process, Forked)


def template_of(nursery: Nursery) -> int:
    assert nursery._template is not None
    return nursery._template._process.pid


def tasks() -> int:
    """Threads of this process."""
    return len(list(Path("/proc/self/task").iterdir()))


def until(condition: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def state(pid: int) -> str | None:
    """As the kernel calls it (Z: nobody reaps it); None if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def descriptors(pid: int | str) -> Counter[str]:
    """What a process has open, by kind."""
    found: Counter[str] = Counter()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            what = os.readlink(entry)
            found["file" if what.startswith("/") else what.partition(":")[0]] += 1
        except FileNotFoundError:
            continue  # the one that lists
    return found


def script_nursery(tmp_path: Path, before: str, after: str = "") -> Nursery:
    """``before`` runs in the template, ``after`` in each child before it answers as a stand-in."""
    stand_in = Path(__file__).with_name("stand_in.py")
    script = tmp_path / "template.py"
    script.write_text(
        f"import runpy, os, sys, threading, time\nfrom pathlib import Path\n"
        f"from deuteron.tuner.evaluate.template import load, serve\n{before}\nserve()\n{after}\n"
        f"runpy.run_path({str(stand_in)!r}, run_name='__main__')\n"
    )
    return Nursery((sys.executable, str(script)))


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


def test_a_template_that_is_killed_takes_nobody_along(own: Nursery) -> None:
    with ChildProcess(COMMAND, own) as child, ChildProcess(COMMAND, own) as later:
        assert ask(child)["status"] == "ok"
        before, template = child.pid, template_of(own)
        os.kill(template, signal.SIGKILL)
        until(lambda: state(template) is None, "the killed template is a zombie")
        time.sleep(0.6)
        assert ask(child)["pid"] == before
        assert ask(later)["status"] == "ok" and is_forked(later) and template_of(own) != template
        with pytest.raises(ChildCrashed, match="process ended$"):  # how, only the template could have said
            ask(child, "exit")
        ask(child)
        os.kill(template_of(own), signal.SIGKILL)
        orphan = pid_of(child)
        child.end()
        until(lambda: state(orphan) in (None, "Z"), "an orphan was not killed")
    assert not child.running


def test_a_template_that_hangs_is_replaced(own: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    with ChildProcess(COMMAND, own) as child:
        ask(child)
        hanging = template_of(own)
        os.kill(hanging, signal.SIGSTOP)
        monkeypatch.setattr(module, "_START_SECONDS", 3.0)
        with ChildProcess(COMMAND, own) as other:
            assert ask(other)["status"] == "ok"
        assert ask(child)["status"] == "ok"
        until(lambda: state(hanging) is None, "the hanging template was left")


def test_a_child_that_is_killed_is_told_by_its_signal(own: Nursery) -> None:
    with ChildProcess(COMMAND, own) as child:
        ask(child)
        child.send("screen", {"config": {"deed": "hang"}})
        os.kill(pid_of(child), signal.SIGKILL)
        with pytest.raises(ChildCrashed, match="SIGKILL"):
            child.receive(2, time.monotonic() + 20)


@pytest.mark.parametrize("others", [0, 1])
def test_all_end_with_the_process_that_started_them(tmp_path: Path, others: int) -> None:
    """Hanging children too, also where a copy of that process keeps the template waiting for requests."""
    told = tmp_path / "pids"
    program = f"""
import os, sys, time
from pathlib import Path
from deuteron.tuner.evaluate.child import ChildProcess
from deuteron.tuner.evaluate.nursery import Nursery
nursery = Nursery({(*STAND_IN_TEMPLATE, "1")!r})
children = [ChildProcess({COMMAND!r}, nursery) for _ in range(3)]
for child in children:
    child.send("screen", {{"config": {{"deed": "hang"}}}})
copies = [os.fork() for _ in range({others})]
if 0 in copies:
    time.sleep(30)
pids = [nursery._template._process.pid, *(child.pid for child in children)]
Path({str(told)!r}).with_suffix(".part").write_text(" ".join(map(str, pids + copies)))
os.rename({str(told.with_suffix(".part"))!r}, {str(told)!r})
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", program])
    until(told.exists, "the program did not start its children", 60)
    pids = [int(pid) for pid in told.read_text().split()]
    assert len(pids) == 4 + others and all(state(pid) not in (None, "Z") for pid in pids)
    parent.kill()
    parent.wait()
    try:
        for pid in pids[:4]:
            until(lambda pid=pid: state(pid) in (None, "Z"), "a process outlived the one that it served", 10)
    finally:
        for pid in pids[4:]:
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("command", [[sys.executable, "-c", "{note}; raise SystemExit(1)"], ["/no/such/program"]])
def test_without_a_template_children_are_programs(tmp_path: Path, command: list[str]) -> None:
    """It is tried once, not for each child."""
    tried = tmp_path / "tried"
    note = f"open({str(tried)!r}, 'a').write('x')"
    nursery = Nursery([part.replace("{note}", note) for part in command])
    nursery.begin()
    for _ in range(3):
        with ChildProcess(COMMAND, nursery) as child:
            assert ask(child)["status"] == "ok" and not is_forked(child)
    assert not tried.exists() or tried.read_text() == "x"
    nursery._not_before = 0.0
    with ChildProcess(COMMAND, nursery) as child:
        assert ask(child)["status"] == "ok" and not is_forked(child)


@pytest.mark.parametrize(
    "before",
    [
        "def full(): raise BlockingIOError('no more processes')\nos.fork = full",
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "os.kill(os.getpid(), 9)",
    ],
)
def test_a_template_that_cannot_fork_leaves_it_to_programs(tmp_path: Path, before: str) -> None:
    nursery = script_nursery(tmp_path, before)
    with ChildProcess(COMMAND, nursery) as child:
        assert ask(child)["status"] == "ok" and not is_forked(child)
    nursery.close()


def test_an_idle_template_ends_and_is_started_again() -> None:
    nursery = Nursery((*STAND_IN_TEMPLATE, "0.2"))
    nursery.begin()
    first = template_of(nursery)
    until(lambda: state(first) is None, "an idle template stayed, or its zombie")
    with ChildProcess(COMMAND, nursery) as child:
        ask(child)
        assert is_forked(child) and template_of(nursery) != first
        second = template_of(nursery)
        time.sleep(1)
        assert state(second) is not None, "a template with a child is not idle"
        assert ask(child)["status"] == "ok"
    until(lambda: state(second) is None, "an idle template stayed, or its zombie")


def test_two_hundred_starts_leave_nothing(own: Nursery) -> None:
    with ChildProcess(COMMAND, own) as child:
        ask(child)
        template = template_of(own)
        ours, threads, its = descriptors("self"), tasks(), descriptors(template)
        files = set(Path(module.__file__).parent.iterdir())
        pids = []
        for number in range(200):
            with ChildProcess(COMMAND, own) as other:
                if number % 2:
                    ask(other)
                else:
                    other.send("screen", {"config": {"deed": "ok"}})
                assert is_forked(other)
                pids.append(pid_of(other))
        # Fewer where something of an earlier test ended meanwhile.
        until(lambda: descriptors("self") <= ours, "this process has more descriptors than before")
        until(lambda: tasks() <= threads, "this process has more threads than before")
        assert template_of(own) == template
        until(lambda: descriptors(template) == its, "the template has more descriptors than before")
        assert [pid for pid in pids if state(pid) is not None] == []
        assert set(Path(module.__file__).parent.iterdir()) == files
        assert ask(child)["status"] == "ok"


def test_threads_start_children_at_once(own: Nursery) -> None:
    def start(number: int) -> int:
        with ChildProcess(COMMAND, own) as child:
            answer = ask(child)
            assert answer["status"] == "ok" and is_forked(child)
            with pytest.raises(ChildCrashed, match="status 7"):
                ask(child, "exit")
            return int(str(answer["pid"]))

    with ThreadPoolExecutor(8) as pool:
        pids = list(pool.map(start, range(48)))
    assert len(set(pids)) == 48
    assert [pid for pid in pids if state(pid) is not None] == []


def test_a_daemon_of_multiprocessing_can_have_children() -> None:
    """As the workers of a cluster are."""
    program = f"""
import multiprocessing
from deuteron.tuner.evaluate.child import ChildProcess
from deuteron.tuner.evaluate.nursery import Forked, Nursery

def work(queue):
    nursery = Nursery({(*STAND_IN_TEMPLATE, "30")!r})
    with ChildProcess({COMMAND!r}, nursery) as child:
        answer = child.request("screen", {{"config": {{"deed": "ok"}}}}, 60.0)
        queue.put((answer["status"], isinstance(child._process, Forked)))

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    daemon = context.Process(target=work, args=(queue,), daemon=True)
    daemon.start()
    print(*queue.get(timeout=60))
    daemon.join()
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ran.stdout.split() == ["ok", "True"], ran.stderr


def test_an_interrupted_start_leaves_no_process(own: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    with ChildProcess(COMMAND, own) as child:
        ask(child)
        template = template_of(own)

        def interrupted(*_: object) -> list[object]:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(module, "wait", interrupted)
            ask(ChildProcess(COMMAND, own))
        with ChildProcess(COMMAND, own) as later:
            assert ask(later)["status"] == "ok"  # so the template has seen the request before that
        until(lambda: descriptors(template)["anon_inode"] == 1, "a child that nobody knows lives on")
        assert ask(child)["status"] == "ok"
        children = Path(f"/proc/{template}/task/{template}/children")
        if children.exists():
            assert children.read_text().split() == [str(child.pid)]


def test_programs_answer_who_they_are() -> None:
    with ChildProcess(COMMAND) as child:
        assert ask(child)["pid"] == pid_of(child) and isinstance(child._process, StartedProgram)
