"""Ctrl-C on a command, a service, a worker: it reaches the whole process group, at any moment, and nobody prints a
traceback."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import dask
import pytest


def address(log: Path) -> str | None:
    found = re.search("listening on (.*)", log.read_text())
    return found and found[1]


def has_worker(log: Path) -> bool:
    return b"deuteron_workers 1" in urllib.request.urlopen(f"{address(log)}/metrics", timeout=10).read()


def interrupt(arguments: list[str], home: Path, log: Path, ready: Callable[[int], bool]) -> None:
    """Run a command, send SIGINT to its process group when that is ``ready``, and wait for its end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "deuteron", *arguments],
            env={**os.environ, "DEUTERON_HOME": str(home)},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 60
        while not ready(process.pid) and time.monotonic() < deadline:
            assert process.poll() is None, log.read_text()
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "ready",
    [
        pytest.param(lambda log: address(log) is not None, id="while the worker starts"),
        pytest.param(lambda log: address(log) is not None and has_worker(log), id="with a worker"),
    ],
)
def test_control_c_ends_the_service_quietly(tmp_path: Path, ready: Callable[[Path], bool]):
    log = tmp_path / "serve.log"
    interrupt(["serve", "--port", "0"], tmp_path / "home", log, lambda _: ready(log))
    text = log.read_text()
    assert "listening on" in text
    assert "Traceback" not in text, text


#: The command, with a signal that arrives where Python drops exceptions, while the application is made.
LOST = """
import os, signal, sys
from deuteron.cli import main
from deuteron.server import app

make = app.create_app

class Interrupted:
    def __del__(self):
        os.killpg(0, getattr(signal, sys.argv[1]))
        for _ in range(1000):
            pass

def create_app(*given, **named):
    made = make(*given, **named)
    Interrupted()
    return made

app.create_app = create_app
sys.exit(main(["serve", "--port", "0"]))
"""


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", -signal.SIGTERM)])
def test_a_signal_is_not_lost_while_the_service_starts(tmp_path: Path, name: str, code: int):
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOST, name],
        env={**os.environ, "DEUTERON_HOME": str(tmp_path / "home")},
        capture_output=True,
        start_new_session=True,
        text=True,
        timeout=60,
    )
    assert "listening on" in done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == code


def test_a_command_is_interrupted_while_its_modules_are_imported():
    program = (
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'deuteron.cli.app':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from deuteron.cli import main\n"
        "sys.exit(main(['devices']))\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "")


_SCHEDULER = """
import asyncio
from distributed import Scheduler

async def main():
    async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
        print(scheduler.address, flush=True)
        await scheduler.finished()

asyncio.run(main())
"""


@pytest.fixture
def scheduler() -> Iterator[str]:
    """The address of a scheduler of its own process group."""
    command = [sys.executable, "-P", "-c", _SCHEDULER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def measuring(group: int) -> list[int]:
    """The signals that the measuring processes of a group block, as bits."""
    blocked = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getpgid(int(folder.name)) != group:
                continue
            mask = re.search("^SigBlk:(.*)", (folder / "status").read_text(), re.MULTILINE)
            if "spawn_main" in (folder / "cmdline").read_text() and mask:
                blocked.append(int(mask[1], 16))
    return blocked


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_a_measuring_process_is_not_interrupted_while_it_starts(
    tmp_path: Path, request: pytest.FixtureRequest, command: str
):
    options = ["--port", "0"]
    if command == "worker":
        options = [request.getfixturevalue("scheduler"), "--server", "http://127.0.0.1:1", "--device", "cpu"]
    log = tmp_path / "log"
    blocked: list[int] = []

    def starts(group: int) -> bool:
        blocked.extend(measuring(group))
        return bool(blocked)

    interrupt([command, *options], tmp_path / "home", log, starts)
    assert blocked
    assert all(mask >> (signal.SIGINT - 1) & 1 for mask in blocked)
    assert not any(mask >> (signal.SIGTERM - 1) & 1 for mask in blocked), "who starts them ends them"
    assert "Traceback" not in log.read_text()


def test_a_worker_leaves_the_signals_as_they_were(run):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):  # half a minute by default
        assert run("worker", "tcp://127.0.0.1:1", "--device", "cpu", "--server", "http://127.0.0.1:1").code == 2
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
