"""Profiles are written however a process ends, to where they were asked for, and by forked children to files of their
own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import deuteron.profiler as proton
from deuteron.profiler.session import registry

START = """
import os, sys, time
import deuteron.profiler as proton
proton.start({name!r}, backend="cpu")
with proton.scope("before", {{"n": 1}}):
    pass
"""


def script(folder: Path, body: str, name: str = "p") -> list[str]:
    path = folder / "program.py"
    path.write_text(START.format(name=name) + body)
    return [sys.executable, "-P", str(path)]


def run(folder: Path, body: str, name: str = "p") -> subprocess.CompletedProcess[str]:
    return subprocess.run(script(folder, body, name), cwd=folder, capture_output=True, text=True, timeout=120)


def scopes(path: Path) -> list[str]:
    return [child["frame"]["name"] for child in json.loads(path.read_text())[0]["children"]]


@pytest.mark.parametrize(
    ("body", "code"), [("", 0), ("sys.exit(3)", 3), ("raise ValueError('mine')", 1)], ids=["end", "exit", "error"]
)
def test_a_session_that_nobody_finalized_is_written(tmp_path: Path, body: str, code: int) -> None:
    done = run(tmp_path, body)
    assert done.returncode == code
    assert f"proton: session 'p' was not finalized; wrote {tmp_path}/p.hatchet\n" in done.stderr
    assert scopes(tmp_path / "p.hatchet") == ["before"]


def test_nothing_is_said_about_one_that_was(tmp_path: Path) -> None:
    assert run(tmp_path, "proton.finalize()").stderr == ""


def test_a_change_of_folder_moves_no_profile(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    run(tmp_path, "os.chdir('elsewhere')\nproton.finalize()")
    assert scopes(tmp_path / "p.hatchet") == ["before"]
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_terminated_process_writes_and_is_seen_to_be_terminated(tmp_path: Path) -> None:
    process = subprocess.Popen(
        script(tmp_path, "print('ready', flush=True)\ntime.sleep(60)"), cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM
    assert scopes(tmp_path / "p.hatchet") == ["before"]


def test_a_session_that_another_thread_started_is_written_on_sigterm(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "import os, signal, threading, time\nimport deuteron.profiler as proton\n"
        "thread = threading.Thread(target=proton.start, args=('p',), kwargs={'backend': 'cpu'})\n"
        "thread.start()\nthread.join()\n"
        "with proton.scope('x'):\n    os.kill(os.getpid(), signal.SIGTERM)\n    time.sleep(60)\n"
    )
    done = subprocess.run([sys.executable, "-P", path], cwd=tmp_path, capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGTERM
    assert scopes(tmp_path / "p.hatchet") == ["x"]


def test_a_handler_of_the_program_stays(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(
        "import signal, sys, os\nimport deuteron.profiler as proton\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
        "proton.start('p', backend='cpu')\n"
        "with proton.scope('x'):\n    os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    done = subprocess.run([sys.executable, "-P", path], cwd=tmp_path, capture_output=True, timeout=120)
    assert done.returncode == 5
    assert scopes(tmp_path / "p.hatchet") == ["x"]


def test_an_unwritable_profile_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    done = run(tmp_path, "os.rmdir('gone')", name="gone/p")
    assert done.returncode == 0
    assert "proton: session 'gone/p' was not finalized: cannot write" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_one_session_meets_is_not_the_end_of_the_others(tmp_path: Path) -> None:
    """Neither a folder that is gone, where its phases were to be written, nor what nobody foresaw."""
    (tmp_path / "gone").mkdir()
    body = """
from deuteron.profiler.session import registry
broken = registry.get(proton.start("broken", backend="cpu"))
lost = proton.start("gone/a", backend="cpu", mode="periodic_flushing")
proton.start("last", backend="cpu")
with proton.scope("x"):
    pass
broken.encode = lambda phase, suffix: 1 / 0
os.rmdir("gone")
try:
    proton.data.advance_phase(lost)
except proton.ProfileFileError:
    pass
"""
    done = run(tmp_path, body)
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert "proton: session 'broken' was not finalized: ZeroDivisionError: division by zero\n" in done.stderr
    assert "proton: session 'gone/a' was not finalized: cannot write" in done.stderr
    assert scopes(tmp_path / "p.hatchet") == ["before", "x"] and scopes(tmp_path / "last.hatchet") == ["x"]


POOL = """
import multiprocessing

def child(n):
    with proton.scope("child"):
        return n

if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(child, range(8), chunksize=1)
        pool.close()
        pool.join()
    proton.finalize()
"""


@pytest.mark.parametrize("name", ["p", "p-%p"])
def test_children_of_a_pool_have_files_of_their_own(tmp_path: Path, name: str) -> None:
    done = run(tmp_path, POOL, name)
    assert done.returncode == 0, done.stderr
    files = {path.name: scopes(path) for path in tmp_path.glob("*.hatchet")}
    children = [file for file, inside in files.items() if inside == ["child"]]
    assert [inside for inside in files.values() if inside == ["before"]] == [["before"]]
    assert 1 <= len(children) <= 2
    assert len(files) == 1 + len(children), files


@pytest.mark.parametrize("name", ["p", "p-%p"])
def test_so_have_children_of_children(tmp_path: Path, name: str) -> None:
    """They wrote that of the first process."""
    body = """
for scope in ("child", "grandchild"):
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        break
    with proton.scope(scope): pass
proton.finalize()
"""
    done = run(tmp_path, body, name)
    assert done.returncode == 0, done.stderr
    assert sorted(map(scopes, tmp_path.glob("*.hatchet"))) == [["before"], ["child"], ["grandchild"]]


def test_a_child_has_a_file_of_its_own_in_a_folder_that_is_called_after_its_parent(tmp_path: Path) -> None:
    """The folder is there for the parent; both wrote the same file of it."""
    body = """
os.mkdir(str(os.getpid()))
proton.start("%p/q", backend="cpu")
with proton.scope("own"): pass
pid = os.fork()
if not pid:
    with proton.scope("child"): pass
    sys.exit()
os.waitpid(pid, 0)
proton.finalize()
"""
    done = run(tmp_path, body)
    assert done.returncode == 0, done.stderr
    assert sorted(scopes(path) for path in tmp_path.glob("*/q*.hatchet")) == [["child"], ["own"]]


def test_a_child_that_is_terminated_writes(tmp_path: Path) -> None:
    body = """
import signal

reader, writer = os.pipe()
pid = os.fork()
if not pid:
    with proton.scope("child"):
        pass
    os.write(writer, b"x")
    time.sleep(60)
os.read(reader, 1)
os.kill(pid, signal.SIGTERM)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
proton.finalize()
"""
    done = run(tmp_path, body)
    assert done.returncode == 0, done.stderr
    assert sorted(scopes(path) for path in tmp_path.glob("*.hatchet")) == [["before"], ["child"]]


def test_a_child_does_without_the_lock_that_another_thread_of_its_parent_held(tmp_path: Path) -> None:
    body = """
import signal, threading
from deuteron.profiler.session import registry

held, over = threading.Event(), threading.Event()

def hold():
    with registry.lock:
        held.set()
        over.wait()

thread = threading.Thread(target=hold)
thread.start()
held.wait()
pid = os.fork()
if not pid:
    signal.alarm(30)
    with proton.scope("child"): pass
    proton.finalize()
    os._exit(0)
_, status = os.waitpid(pid, 0)
over.set()
thread.join()
proton.finalize()
assert status == 0
"""
    done = run(tmp_path, body)
    assert done.returncode == 0, done.stderr
    assert sorted(map(scopes, tmp_path.glob("*.hatchet"))) == [["before"], ["child"]]


def test_the_first_of_several_failures_is_raised_when_all_others_are_written(tmp_path: Path) -> None:
    for name in ("first", "second", "last"):
        proton.start(name, backend="cpu")
    for name, error in (("first", ZeroDivisionError), ("second", KeyError)):
        session = registry.by_name(name)
        assert session is not None
        session.encode = unable(error)  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        proton.finalize()
    assert Path("last.hatchet").exists() and registry.by_name("last") is None and registry.by_name("first") is not None


def unable(error: type[Exception]) -> Callable[[object, str], bytes]:
    def encode(phase: object, suffix: str) -> bytes:
        raise error

    return encode


def test_a_child_that_records_nothing_writes_nothing(tmp_path: Path) -> None:
    body = "pid = os.fork()\nif not pid: sys.exit()\nos.waitpid(pid, 0)\nproton.finalize()"
    assert run(tmp_path, body).returncode == 0
    assert [path.name for path in tmp_path.glob("*.hatchet")] == ["p.hatchet"]


def test_a_forked_child_can_finalize(tmp_path: Path) -> None:
    body = (
        "pid = os.fork()\nif not pid:\n    with proton.scope('own'): pass\nelse: os.waitpid(pid, 0)\nproton.finalize()"
    )
    assert run(tmp_path, body).returncode == 0
    assert sorted(scopes(path) for path in tmp_path.glob("*.hatchet")) == [["before"], ["own"]]


FORK_IN_SCOPES = """
proton.start("own", backend="cpu", data={data!r})
proton.enter_scope("by hand", metrics={{"parent": 1}})
with proton.cpu_timed_scope("timed"):
    time.sleep(0.2)
    pid = os.fork()
    if pid: os.waitpid(pid, 0)
who = "parent" if pid else "child"
proton.exit_scope("by hand", metrics={{who: 2}})
with proton.scope("after"): pass
proton.finalize()
"""


def test_metrics_of_a_scope_that_a_child_began_in_are_in_its_tree(tmp_path: Path) -> None:
    """They were lost. What was measured until the fork is the parent's."""
    done = run(tmp_path, FORK_IN_SCOPES.format(data="tree"))
    assert done.returncode == 0, done.stderr
    (mine,) = [path for path in tmp_path.glob("own*.hatchet") if path.name != "own.hatchet"]
    for path, metrics in ((tmp_path / "own.hatchet", {"parent": 3}), (mine, {"child": 2})):
        by_hand, after = json.loads(path.read_text())[0]["children"]
        assert by_hand["frame"]["name"] == "by hand" and by_hand["metrics"] == metrics
        assert after["frame"]["name"] == "after"
        (timed,) = by_hand["children"]
        assert timed["frame"]["name"] == "timed"
        assert (timed["metrics"]["cpu_time (ns)"] > 200e6) == ("parent" in metrics)


def test_a_scope_that_a_child_began_in_is_in_its_trace_from_the_fork_on(tmp_path: Path) -> None:
    done = run(tmp_path, FORK_IN_SCOPES.format(data="trace"))
    assert done.returncode == 0, done.stderr
    (mine,) = [path for path in tmp_path.glob("own*.chrome_trace") if path.name != "own.chrome_trace"]
    spans = [event for event in json.loads(mine.read_text())["traceEvents"] if event["ph"] == "X"]
    assert [span["args"]["call_stack"][1:] for span in spans] == [["by hand"], ["by hand", "timed"], ["after"]]
    assert spans[0]["args"]["metrics"] == {"child": "2"} and spans[0]["dur"] < 200e3


def test_a_child_that_only_began_in_scopes_writes_no_trace(tmp_path: Path) -> None:
    body = """
proton.start("own", backend="cpu", data="trace")
proton.enter_scope("by hand")
with proton.scope("with"):
    import multiprocessing
    child = multiprocessing.get_context("fork").Process(target=print)
    child.start()
    child.join()
proton.finalize()
"""
    done = run(tmp_path, body)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own.chrome_trace", "p.hatchet", "program.py"]


def test_letters_in_names(tmp_path: Path) -> None:
    import os

    proton.start("100%%-%p", backend="cpu")
    proton.finalize()
    assert Path(f"100%-{os.getpid()}.hatchet").exists()
    with pytest.raises(proton.UsageError, match="'%q' in the session name"):
        proton.start("a%q", backend="cpu")
