"""Child processes that really crash, hang and talk nonsense."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stand_in_processes import COMMAND

from deuteron.compiler import get_device
from deuteron.tuner.codec import JsonObject
from deuteron.tuner.evaluate import session
from deuteron.tuner.evaluate.child import ChildCrashed, ChildProcess, ChildTimeout, _tail
from deuteron.tuner.evaluate.compile_pool import CompilePool
from deuteron.tuner.evaluate.messages import Prepare, Race
from deuteron.tuner.evaluate.nursery import Nursery
from deuteron.tuner.evaluate.started import StartedProgram
from deuteron.tuner.measure.sampling import Rounds
from deuteron.tuner.measure.stopping import is_settled
from deuteron.tuner.space import Configuration
from deuteron.tuner.workloads import Problem, builtin_workload
from deuteron.tuner.workloads.tolerance import Comparison


@pytest.fixture
def child(nursery: Nursery | None) -> Iterator[ChildProcess]:
    with ChildProcess(COMMAND, nursery) as process:
        yield process


def ask(child: ChildProcess, deed: str, timeout: float = 20.0) -> dict[str, object]:
    return child.request("screen", {"config": {"deed": deed}}, timeout)


def test_answers_and_keeps_its_process(child: ChildProcess) -> None:
    first, second = ask(child, "ok"), ask(child, "print")
    assert first["status"] == "ok" and first["pid"] == second["pid"]


@pytest.mark.parametrize(
    ("deed", "message"),
    [
        ("segfault", "SIGSEGV: Fatal Python error: Segmentation fault"),
        ("abort", "SIGABRT: Fatal Python error: Aborted"),
        ("exit", "status 7"),
        ("nonsense", "answered nonsense"),
    ],
)
def test_crash_is_an_error_and_the_next_request_starts_anew(child: ChildProcess, deed: str, message: str) -> None:
    before = ask(child, "ok")["pid"]
    with pytest.raises(ChildCrashed, match=message):
        ask(child, deed)
    after = ask(child, "ok")
    assert after["status"] == "ok" and after["pid"] != before


def test_the_fatal_error_is_told_whatever_stands_behind_it() -> None:
    """The stacks of all threads, and names of extensions."""
    with tempfile.TemporaryFile() as log:
        log.write(b"a kernel printed this\nFatal Python error: Segmentation fault\n\nCurrent thread 0x1:\n")
        log.write(b'  File "deuteron/tuner/evaluate/session.py", line 100 in screen\n' * 300)
        log.write(b"\nExtension modules: msgspec._core, numpy (total: 2)\n")
        assert _tail(log) == "Fatal Python error: Segmentation fault"


def test_request_after_the_last_answer_goes_to_a_new_process(child: ChildProcess) -> None:
    """As after a failed GPU context, while the old process is still on its way out."""
    assert ask(child, "last")["status"] == "crashed"
    assert ask(child, "ok")["status"] == "ok"


def test_an_answer_that_was_left_unread_is_no_answer_to_the_next_request(child: ChildProcess) -> None:
    assert not child.owes
    child.send("screen", {"config": {"deed": "print"}})
    assert child.owes
    with pytest.raises(ChildCrashed, match="answered another request"):
        ask(child, "ok")
    assert not child.owes and ask(child, "ok")["identity"] == "ok" and not child.owes


def test_hanging_child_is_killed_in_time(child: ChildProcess) -> None:
    pid = ask(child, "ok")["pid"]
    began = time.monotonic()
    with pytest.raises(ChildTimeout):
        ask(child, "hang", timeout=0.3)
    assert time.monotonic() - began < 5
    with pytest.raises(ProcessLookupError):
        os.kill(int(str(pid)), 0)


def test_a_kill_ends_although_an_interrupt_left_a_lock_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Ctrl-C does when it arrives in ``Popen.poll``, right after that has taken its lock."""
    monkeypatch.setattr("deuteron.tuner.evaluate.started._REAP_SECONDS", 0.1)
    child = ChildProcess(COMMAND)
    ask(child, "ok")
    assert isinstance(child._process, StartedProgram)
    process = child._process.process
    process._waitpid_lock.acquire()  # type: ignore[attr-defined]
    child.end()
    with pytest.raises(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def test_killed_from_outside(child: ChildProcess) -> None:
    ask(child, "ok")
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    time.sleep(0.1)
    assert ask(child, "ok")["status"] == "ok"


@pytest.fixture
def pool(nursery: Nursery | None) -> Iterator[CompilePool]:
    made = CompilePool({"workload": {"name": "w"}}, workers=2, timeout=1.5, command=COMMAND, nursery=nursery)
    yield made
    made.close()


def test_pool_compiles_in_parallel_and_labels_failures(pool: CompilePool) -> None:
    deeds = ["ok", "segfault", "slow", "hang", "print", "exit"]
    for deed in deeds:
        pool.submit({"deed": deed})
    statuses = {deed: pool.result({"deed": deed}).status for deed in deeds}
    assert statuses == {
        "ok": "ok",
        "segfault": "crashed",
        "slow": "ok",
        "hang": "timeout",
        "print": "ok",
        "exit": "crashed",
    }
    assert "SIGSEGV" in (pool.result({"deed": "segfault"}).error or "")
    assert pool.result({"deed": "ok"}).metrics == {"registers": 8.0}


def test_pool_says_what_is_compiled_first(pool: CompilePool) -> None:
    """Not what was asked for first; of those that are done the one that stands first; a time-out is an outcome."""
    slow, quick, hanging = ({"deed": deed} for deed in ("slow", "ok", "hang"))
    assert pool.first_done([slow, quick]) == 1
    assert pool.first_done([quick]) == 0
    assert pool.first_done([slow]) == 0
    assert pool.first_done([hanging, slow, quick]) == 1
    assert pool.first_done([hanging]) == 0
    assert pool.result(hanging).status == "timeout"


def test_pool_knows_what_is_compiled_without_waiting(pool: CompilePool) -> None:
    """Whether or not anybody waited for it; what hangs keeps nobody."""
    slow, hanging, other = ({"deed": deed} for deed in ("slow", "hang", "print"))
    began = time.monotonic()
    pool.submit(hanging)
    pool.submit(slow)
    assert not pool.is_done([slow, hanging, other])
    while not pool.is_done([slow, other]):
        assert time.monotonic() - began < 20
        time.sleep(0.01)
    assert not pool.is_done([hanging, other]) and pool.first_done([hanging, slow]) == 1
    assert pool.result(hanging).status == "timeout"


@pytest.fixture
def crowded() -> Iterator[None]:
    """Descriptors below 1024 are taken, as in a service with many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while taken[-1] < 1024:
            taken.append(os.dup(taken[0]))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("crowded")
def test_descriptors_may_have_large_numbers(child: ChildProcess, pool: CompilePool) -> None:
    assert ask(child, "ok")["status"] == "ok"
    assert child.fileno() > 1023
    assert pool.result({"deed": "ok"}).status == "ok"


def test_pool_fills_the_cache_for_other_problems(pool: CompilePool) -> None:
    """Each in a process that was told of it, in place of what had not begun; outcomes are those of its own problem."""
    other: JsonObject = {"workload": {"name": "w"}, "dims": {"n": 7}}
    configs: list[Configuration] = [{"deed": deed, "at": at} for at, deed in enumerate(("slow", "slow", "hang"))]
    slow, first, never = configs
    for config in (slow, first, never):
        pool.submit(config)
    pool.fill_cache([(other, {"deed": "ok"}), (other, {"deed": "ok"}), (other, slow)])
    pool.settle()
    assert not pool.is_done([{"deed": "ok"}, never]) and pool.is_done([slow]) and pool.is_done([first])
    assert "n" not in pool.result({"deed": "ok"}).metrics


def test_pool_goes_on_in_processes_whose_answers_nobody_has_read(pool: CompilePool) -> None:
    """Nobody does while the device is asked; what is wanted next begins all the same."""
    other: JsonObject = {"workload": {"name": "w"}, "dims": {"n": 7}}
    for turn in range(2):
        pool.fill_cache([(other, {"deed": "ok", "turn": turn, "at": at}) for at in range(2 * pool.workers)])
        begun = [slot.wanted.config["turn"] for slot in pool._slots if slot.wanted is not None]
        assert begun == [turn] * pool.workers
        deadline = time.monotonic() + 20
        while not all(slot.child.arrived for slot in pool._slots) and time.monotonic() < deadline:
            time.sleep(0.01)


def test_pool_settles(pool: CompilePool) -> None:
    for number in range(4):
        pool.submit({"deed": "slow", "number": number})
    pool.settle()
    began = time.monotonic()
    for number in range(4):
        assert pool.result({"deed": "slow", "number": number}).status == "ok"
    assert time.monotonic() - began < 0.1


def test_pool_drops_what_is_at_work(pool: CompilePool) -> None:
    """Whoever drops it ends it, when there is time; others compile meanwhile."""
    assert pool.drop_work() == []
    for again in range(4):
        pool.submit({"deed": "hang", "again": again})
    dropped = pool.drop_work()
    assert len(dropped) == 2 and all(child.running for child in dropped)
    assert pool.result({"deed": "ok"}).status == "ok"
    assert not pool.is_done([{"deed": "hang", "again": again} for again in range(4)])
    for child in dropped:
        child.end()


def test_pool_that_cannot_prepare_reports_it_each_time() -> None:
    pool = CompilePool({"workload": {"name": "unpreparable"}}, workers=1, command=COMMAND)
    try:
        for number in range(3):
            result = pool.result({"deed": "ok", "number": number})
            assert (result.status, result.error) == ("failed", "cannot prepare")
    finally:
        pool.close()


def test_only_a_final_checks_before_and_after_and_ends_when_it_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def rounds(stopwatch: object, launches: list[object], *, enough: object, **more: object) -> Rounds:
        asked.append((len(launches), enough, more["rounds"]))
        return Rounds([[1.0] for _ in launches], [])

    monkeypatch.setattr(session, "interleaved_rounds", rounds)
    spec = builtin_workload("vector_add")
    problem = Problem(spec, {"n": 64}, "f32")
    default = problem.default(problem.searched(get_device("cpu").properties)[0], "cpu")
    made = session.ChildSession()
    made.prepare(Prepare(spec, {"n": 64}, "f32", "cpu", device="cpu", default=default, seed=1))
    checks: list[object] = []
    checker, _ = made._ready()

    def check(config: object) -> Comparison:
        checks.append(config)
        return Comparison(0.0)

    monkeypatch.setattr(checker, "check", check)
    made.race(Race((default, default), 30, 1.0, 1, final=False))
    assert asked == [(2, None, 30)] and checks == []
    made.race(Race((default, default), 30, 1.0, 1, final=True))
    assert asked[1:] == [(2, is_settled, 30)] and checks == 2 * [default, default]


def test_children_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    """The real worker watches its parent: a hung kernel must not outlive a killed tuner."""
    pid_file = tmp_path / "pid"
    program = f"""
import time
from pathlib import Path
from deuteron.tuner.evaluate.child import ChildProcess
child = ChildProcess()
child.receive(child.send("limit", {{"bytes": 1 << 40}}), time.monotonic() + 60)
Path({str(pid_file)!r}).write_text(str(child.pid))
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", program])
    deadline = time.monotonic() + 60
    while not pid_file.exists() or not pid_file.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    pid = int(pid_file.read_text())
    os.kill(pid, 0)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 10
    while _alive(pid):
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.1)


def _alive(pid: int) -> bool:
    """Running, and not a zombie that nobody reaps in a container without init."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
