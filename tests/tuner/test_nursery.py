"""Nurseries: whoever is killed, hangs or cannot be started, children come, end, and leave nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from forked_children import ask, descriptors, is_forked, pid_of, script_nursery, state, tasks, template_of
from stand_in_processes import COMMAND, STAND_IN_TEMPLATE, until

from deuteron.tuner.evaluate import nursery as module
from deuteron.tuner.evaluate.child import ChildCrashed, ChildProcess
from deuteron.tuner.evaluate.nursery import Nursery
from deuteron.tuner.evaluate.started import StartedProgram

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere children are started as programs")


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
