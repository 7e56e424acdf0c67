"""Ctrl-C on a running service: it reaches the whole process group, and nobody prints a traceback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest


def address(log: Path) -> str | None:
    found = re.search("listening on (.*)", log.read_text())
    return found and found[1]


def has_worker(log: Path) -> bool:
    return b"deuteron_workers 1" in urllib.request.urlopen(f"{address(log)}/metrics", timeout=10).read()


@pytest.mark.parametrize(
    "ready",
    [
        pytest.param(lambda log: address(log) is not None, id="while the worker starts"),
        pytest.param(lambda log: address(log) is not None and has_worker(log), id="with a worker"),
    ],
)
def test_control_c_ends_the_service_quietly(tmp_path: Path, ready: Callable[[Path], bool]):
    log = tmp_path / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "deuteron.cli", "serve", "--port", "0"],
            env={**os.environ, "DEUTERON_HOME": str(tmp_path / "home")},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 60
        while not ready(log) and time.monotonic() < deadline:
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    text = log.read_text()
    assert "listening on" in text
    assert "Traceback" not in text, text
