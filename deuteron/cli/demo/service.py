"""The demo's own service: a process that ends with the demo, however that ends."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING

from ..errors import CommandError

if TYPE_CHECKING:
    from deuteron.server import Client

_START_S = 60.0
_STOP_S = 20.0
_LOG_LINES = 15


class DemoService:
    """``deuteron serve`` on a free port of this machine, with its data in ``home``. A context manager.

    Raises:
        CommandError: it did not come up; the message has the end of its log.
    """

    def __init__(self, home: Path, log: Path) -> None:
        self._home = home.resolve()
        self._log = log
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def connect(self) -> Client:
        """A client of this service."""
        from deuteron.server import Client  # lazy: help starts without the service

        return Client(self.url)

    def __enter__(self) -> DemoService:
        self._output = self._log.open("wb")
        # A session of its own: Ctrl-C reaches the demo only, which then stops the service in order; and whatever
        # processes the service has started can be ended together.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "deuteron", *self._command()],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _command(self) -> list[str]:
        from deuteron.server.addresses import sqlite_address  # lazy: help starts without the service

        return [
            "serve",
            *("--host", "127.0.0.1", "--port", str(self._port), "--home", str(self._home)),
            *("--database", sqlite_address(self._home / "deuteron.db"), "--scheduler", "embedded"),
        ]

    def _wait_until_ready(self) -> None:
        import httpx

        process = self._process
        deadline = time.monotonic() + _START_S
        # trust_env: a proxy for the internet is not asked for this machine.
        with httpx.Client(base_url=self.url, timeout=5, trust_env=False) as http:
            while process is not None and process.poll() is None and time.monotonic() < deadline:
                try:
                    if http.get("/readyz").status_code == httpx.codes.OK:
                        return
                except httpx.TransportError:
                    pass
                time.sleep(0.1)
        lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        raise CommandError(
            "\n".join(["the service did not start; its log ends with", *lines]),
            hint=f"the whole log is {self._log}",
        )

    def _stop(self) -> None:
        process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                pass
            finally:
                _end_group(process.pid)
                process.wait()
        if self._output is not None:
            self._output.close()


def _end_group(group: int) -> None:
    """End what is left of a session that this process started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
