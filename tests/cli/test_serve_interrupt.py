"""Ctrl-C on a running service: it reaches the whole process group, and nobody prints a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def test_control_c_ends_the_service_quietly(tmp_path: Path):
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
        while "listening on" not in log.read_text() and time.monotonic() < deadline:
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        time.sleep(3)  # the worker process is up and its plugin is in place
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    text = log.read_text()
    assert "listening on" in text
    assert "Traceback" not in text, text
