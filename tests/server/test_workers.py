"""Workers in the database, over HTTP and at dispatch: what they do, and that drained ones get no other job."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from deuteron import migrations
from deuteron.server import Settings
from deuteron.server.api.schemas.fleet import WorkerAnswer
from deuteron.server.app import make_context
from deuteron.server.dispatch import ConnectedWorker
from deuteron.server.dispatch.engine import Dispatched, Engine
from deuteron.server.dispatch.openings import Openings
from deuteron.server.dispatch.roster import Roster
from deuteron.server.dispatch.supervisor import DaskDispatcher
from deuteron.server.fleet import WorkerState, fleet
from deuteron.server.models import WorkerRow
from deuteron.server.store import Job, JobState, NewJob, NotFound, ServiceStore, WorkerIsDraining

LEASE = timedelta(seconds=30)


def store_of(client: TestClient) -> ServiceStore:
    return cast(ServiceStore, client.app.state.context.store)  # type: ignore[attr-defined]


def add_job(store: ServiceStore, device: str = "cpu") -> Job:
    with store.write() as tx:
        return tx.jobs.add(NewJob(str(uuid.uuid4()), "k", "a" * 64, device, "{}", 1))


# -- in the database


def test_what_is_drained_stays_so(database_url: str) -> None:
    """Whatever is restarted: the server (a new store), the worker (another process), who dispatches (sees it again)."""
    migrations.upgrade(database_url)
    store = ServiceStore.open(database_url)
    with store.write() as tx:
        tx.workers.announce("cpu@a/1", device_key="cpu/x", toolchain='{"llvm": "20"}')
        first = tx.workers.drain("cpu@a", who="ada")
    store.close()
    store = ServiceStore.open(database_url)
    with store.write() as tx:
        tx.workers.announce("cpu@a/2", device_key="cpu/x", toolchain=None)
        tx.workers.see(["cpu@a", "cuda:0@b"])
        again = tx.workers.drain("cpu@a", who="bob")
        assert tx.workers.drained() == {"cpu@a"}
        assert [worker.name for worker in tx.workers.all()] == ["cpu@a", "cuda:0@b"]
    assert (again.drained_at, again.drained_by, again.first_seen) == (first.drained_at, "ada", first.first_seen)
    assert (again.process, again.device, again.host) == ("cpu@a/2", "cpu", "a")
    with store.write() as tx:
        assert not tx.workers.resume("cpu@a").draining
        assert tx.workers.drained() == set()
        with pytest.raises(NotFound, match="no worker 'cpu@c'"):
            tx.workers.drain("cpu@c", who="ada")
    store.close()


def test_who_is_not_seen_is_away_and_forgotten_in_the_end(database_url: str) -> None:
    migrations.upgrade(database_url)
    store = ServiceStore.open(database_url)
    with store.write() as tx:
        tx.workers.see(["cpu@a", "cpu@b", "cpu@c"])
        tx.workers.drain("cpu@b", who="ada")
        tx.workers.see(["cpu@b"])
    now = datetime.now(UTC)

    def states(at: datetime) -> dict[str, WorkerState]:
        with store.read() as tx:
            return {each.worker.name: each.state for each in fleet(tx, now=at)}

    assert states(now) == {
        "cpu@a": WorkerState.AWAY,
        "cpu@b": WorkerState.DRAINING,
        "cpu@c": WorkerState.AWAY,
    }
    # The server that dispatches is gone, too: nobody says that the worker is there.
    assert states(now + timedelta(minutes=1))["cpu@b"] is WorkerState.AWAY
    long_ago = now - timedelta(days=31)
    with store.database.write() as connection:
        connection.execute(WorkerRow.__table__.update().values(last_seen=long_ago))  # type: ignore[attr-defined]
    with store.write() as tx:
        tx.workers.see(["cpu@c"])
    assert set(states(now)) == {"cpu@b", "cpu@c"}, "one that is drained is not forgotten"
    store.close()


# -- over HTTP


def test_a_worker_through_its_states(client: TestClient, settings: Settings) -> None:
    context = client.app.state.context  # type: ignore[attr-defined]
    body = {"worker": "cpu@a/7", "devices": [], "toolchain": {"llvm": "20"}}
    assert client.post("/v1/worker/devices", json=body).status_code == 200
    job, other = add_job(context.store), add_job(context.store)

    def worker() -> dict[str, Any]:
        (found,) = client.get("/v1/workers").json()["workers"]
        assert found == client.get("/v1/workers/cpu@a").json()
        return dict(found)

    assert (worker()["state"], worker()["job"], worker()["toolchain"]) == ("idle", None, {"llvm": "20"})
    context.ingest.claim(job.id, claim_id="t.1", worker="cpu@a/7")
    assert (worker()["state"], worker()["job"]) == ("running", job.id)
    answers = [client.post("/v1/workers/cpu@a/drain") for _ in range(2)]
    assert [answer.json() for answer in answers] == [worker(), worker()]
    assert (worker()["state"], worker()["job"], worker()["drained_by"]) == ("draining", job.id, "single user")
    # It may ask again whether it got what it has, and gets nothing else.
    context.ingest.claim(job.id, claim_id="t.1", worker="cpu@a/7")
    refused = client.post(f"/v1/worker/jobs/{other.id}/claim", json={"claim_id": "u.1", "worker": "cpu@a/8"})
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:deuteron:problem:worker-is-draining")
    with pytest.raises(WorkerIsDraining):
        context.ingest.claim(other.id, claim_id="u.1", worker="cpu@a/7")
    with context.store.read() as tx:
        assert (tx.jobs.get(other.id).state, tx.jobs.get(other.id).attempts) == (JobState.QUEUED, 0)
    context.ingest.release(job.id, reason="it died")
    assert (worker()["state"], worker()["job"]) == ("draining", None)
    rows = client.get("/workers").text
    assert "draining" in rows and "by single user" in rows and "llvm=20" in rows
    assert client.post("/v1/workers/cpu@a/resume").json()["state"] == "idle"
    context.ingest.claim(other.id, claim_id="u.1", worker="cpu@a/7")
    assert worker()["job"] == other.id


def test_only_administrators_drain_and_only_what_is_there(settings: Settings, open_client: Callable[..., Any]) -> None:
    client = open_client(replace(settings, auth="tokens"))
    with store_of(client).write() as tx:
        secrets = {scope: tx.tokens.create(scope, [scope])[1] for scope in ("read", "submit", "worker", "admin")}
        tx.workers.see(["cpu@a"])
    for change in ("drain", "resume"):
        statuses = {
            scope: client.post(f"/v1/workers/cpu@a/{change}", headers={"Authorization": f"Bearer {secret}"}).status_code
            for scope, secret in secrets.items()
        }
        assert statuses == {"read": 403, "submit": 403, "worker": 403, "admin": 200}
        unknown = client.post(f"/v1/workers/cpu@b/{change}", headers={"Authorization": f"Bearer {secrets['admin']}"})
        assert (unknown.status_code, unknown.headers["content-type"]) == (404, "application/problem+json")
        assert "cpu@b" in unknown.json()["detail"] and "GET /v1/workers" in unknown.json()["hint"]
    assert client.get("/v1/workers").status_code == 401


def test_the_example_is_a_worker(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()["components"]["schemas"]["WorkerAnswer"]
    (example,) = schema["examples"]
    assert WorkerAnswer.model_validate(example).model_dump(mode="json") == example
    assert set(example) == set(schema["required"]) == set(schema["properties"])


# -- at dispatch


@dataclass
class Future:
    """Stays at the scheduler until it is cancelled, or the test says that it ended."""

    cancelled: bool = False
    ended: bool = False
    status: str = "finished"

    def done(self) -> bool:
        return self.ended

    def result(self) -> str:
        return "done"

    def exception(self) -> Exception:
        return RuntimeError("a worker died")

    def cancel(self) -> None:
        self.cancelled = True

    def add_done_callback(self, _call: object) -> None:
        pass


@dataclass
class PretendedEngine:
    """An engine whose workers a test names; what it was given, by job."""

    here: list[ConnectedWorker]
    given: list[tuple[str, frozenset[str] | None, Future]] = field(default_factory=list)

    def workers(self) -> list[ConnectedWorker]:
        return self.here

    def submit(self, job_id: str, ticket: str, _device: str, among: frozenset[str] | None, *, place: int) -> Dispatched:
        self.given.append((job_id, among, Future()))
        return Dispatched(ticket, self.given[-1][2], among)


def test_every_server_of_a_database_says_the_same_of_workers(
    settings: Settings, open_client: Callable[..., TestClient]
) -> None:
    """Those that did not dispatch said that there was none."""
    clients = [open_client(settings), open_client(settings)]
    store = store_of(clients[0])
    submitted = {"workload": "softmax", "shapes": [{"M": 8, "N": 8}]}
    job_id = clients[0].post("/v1/jobs", json=submitted).json()["id"]

    def said() -> tuple[int, str | None]:
        """How many workers are connected, and what the job waits for."""
        answers = set()
        for client in clients:
            one, (listed,) = client.get(f"/v1/jobs/{job_id}").json(), client.get("/v1/jobs").json()["jobs"]
            assert one["waiting_for"] == listed["waiting_for"]
            (line,) = (line for line in client.get("/metrics").text.splitlines() if line.startswith("deuteron_workers"))
            answers.add((int(line.split()[1]), one["waiting_for"]))
        (answer,) = answers
        return answer

    def see(*names: str, drained: bool = False) -> tuple[int, str | None]:
        with store.write() as tx:
            tx.workers.see(names)
            if drained:
                tx.workers.drain(names[0], who="ada")
        return said()

    assert said() == (0, "a worker with cpu")
    assert see("cuda:0@a", "cuda:1@a") == (2, "a worker with cpu")
    assert see("cuda:0@a", "cpu@a") == (2, None)
    assert see("cpu@a", drained=True) == (1, "a worker with cpu that is not draining")
    assert see("cpu@a", "cpu@b") == (2, None)
    # The scheduler is lost: nobody waits until the workers have not been seen for long.
    dispatcher = DaskDispatcher(settings, store, clients[0].app.state.context.ingest, "")  # type: ignore[attr-defined]
    assert dispatcher._lock.acquire()
    engine = PretendedEngine([])
    engine.connected, engine.close = False, lambda: None  # type: ignore[attr-defined]
    dispatcher._forget_engine(cast(Engine, engine))
    dispatcher._lock.release()
    assert said() == (0, "a worker with cpu")


def test_workers_that_do_not_end_in_time_keep_nothing_from_ending(caplog: pytest.LogCaptureFixture) -> None:
    """The jobs that ran are queued after that; the server ended with a traceback, and they waited for their leases."""

    class Slow:
        def close(self, timeout: float) -> None:
            raise TimeoutError(f"timed out after {timeout} s.")

    for engine in (Engine(Slow(), None), Engine(SimpleNamespace(close=lambda timeout: None), Slow())):
        engine.close()
    assert [record.getMessage() for record in caplog.records] == ["not all workers ended in time"] * 2


def test_queued_jobs_go_to_who_is_not_drained(settings: Settings) -> None:
    migrations.upgrade(settings.database_url)
    store = ServiceStore.open(settings.database_url)
    context = make_context(settings, store)
    dispatcher = DaskDispatcher(replace(settings, scheduler="tcp://127.0.0.1:1"), store, context.ingest, "")
    workers = [ConnectedWorker(f"tcp://{host}:1", f"cpu@{host}/9", {"cpu": 1}) for host in "ab"]
    engine = PretendedEngine(list(workers))
    running, queued = add_job(store), add_job(store)

    def round() -> list[tuple[str, frozenset[str] | None]]:
        """What is given to the engine in a round of the dispatcher, which looks at the workers anew."""
        before = len(engine.given)
        dispatcher._roster._asked_at = float("-inf")
        dispatcher._look_at_workers(cast(Engine, engine))
        dispatcher._submit_queued(cast(Engine, engine))
        return [(job_id, among) for job_id, among, _ in engine.given[before:]]

    engine.heal = lambda: None  # type: ignore[attr-defined]
    assert round() == [(running.id, None), (queued.id, None)]
    assert round() == []
    context.ingest.claim(running.id, claim_id="t.1", worker="cpu@a/9")
    with store.write() as tx:
        tx.workers.drain("cpu@a", who="ada")
    # The one that runs is left alone; the one that waits, perhaps behind it, is taken back and given to the other.
    assert round() == [(queued.id, frozenset({"tcp://b:1"}))]
    assert [future.cancelled for *_, future in engine.given] == [False, True, False]
    assert [worker.draining for worker in dispatcher._roster.workers] == [True, False]
    assert round() == []
    # The worker comes back under another address: what was limited to the old one would wait for ever.
    engine.here[1] = replace(workers[1], address="tcp://b:2")
    assert round() == [(queued.id, frozenset({"tcp://b:2"}))]
    with store.write() as tx:
        tx.workers.drain("cpu@b", who="ada")
    assert round() == [] and engine.given[-1][2].cancelled, "nobody may have it: it waits in the database"
    with store.write() as tx:
        tx.workers.resume("cpu@a"), tx.workers.resume("cpu@b")
    assert round() == [(queued.id, None)]
    # Its worker took it and gave it back: Dask, which may take that for a death, is given it anew.
    ticket = dispatcher._dispatched[queued.id].ticket
    context.ingest.claim(queued.id, claim_id=f"{ticket}.1", worker="cpu@b/9")
    assert round() == []
    context.ingest.release(queued.id, reason="stopped", claim_id=f"{ticket}.1", refund=True)
    assert round() == [(queued.id, None)] and dispatcher._dispatched[queued.id].ticket != ticket
    assert engine.given[-2][2].cancelled and round() == []
    # Dask may even have given up for that before this server looked.
    run = f"{dispatcher._dispatched[queued.id].ticket}.1"
    context.ingest.claim(queued.id, claim_id=run, worker="cpu@b/9")
    context.ingest.release(queued.id, reason="stopped", claim_id=run, refund=True)
    engine.given[-1][2].ended, engine.given[-1][2].status = True, "error"
    dispatcher._reap()
    assert round() == [(queued.id, None)]
    with store.read() as tx:
        assert tx.jobs.get(queued.id).state is JobState.QUEUED
    store.close()


def test_the_engine_gets_as_many_jobs_as_workers_are_free(settings: Settings) -> None:
    """It would bind them all to workers at once, and leave one idle while jobs wait for another."""
    migrations.upgrade(settings.database_url)
    store = ServiceStore.open(settings.database_url)
    context = make_context(settings, store)
    dispatcher = DaskDispatcher(replace(settings, scheduler="tcp://127.0.0.1:1"), store, context.ingest, "")
    gpus = [ConnectedWorker(f"tcp://a:{n}", f"cuda:{n}@a/9", {"GPU": 1, f"cuda:{n}": 1}) for n in range(2)]
    engine = PretendedEngine([])
    engine.heal = lambda: None  # type: ignore[attr-defined]

    def add(device: str) -> str:
        job = add_job(store)
        with store.write() as tx:
            changed = {"device": device, "id": job.id}
            tx.jobs.connection.execute(text("UPDATE jobs SET device = :device WHERE id = :id"), changed)
        return job.id

    def round() -> list[str]:
        before = len(engine.given)
        dispatcher._roster._asked_at = float("-inf")
        dispatcher._look_at_workers(cast(Engine, engine))
        dispatcher._reap()
        dispatcher._submit_queued(cast(Engine, engine))
        return [job_id for job_id, *_ in engine.given[before:]]

    def claim(job_id: str, worker: ConnectedWorker) -> None:
        ticket = dispatcher._dispatched[job_id].ticket
        context.ingest.claim(job_id, claim_id=f"{ticket}.1", worker=worker.name)

    def end(job_id: str) -> None:
        """The run of a job returns at the engine."""
        next(future for given, _, future in engine.given if given == job_id).ended = True

    first, second, third, on_one, wrong = (add(device) for device in ("cuda", "cuda", "cuda", "cuda:1", "tpu"))
    assert round() == [first, on_one], "nobody is there: who joins finds one of each kind"
    with store.read() as tx:
        assert tx.jobs.get(wrong).state is JobState.FAILED
    engine.here = list(gpus)
    assert round() == [], "both will be taken"
    claim(first, gpus[0]), claim(on_one, gpus[1])
    assert round() == []
    on_cpu = add("cpu")
    assert round() == [on_cpu]
    context.ingest.fail(on_one, "ended")
    assert round() == [], "its run has not ended: the engine could queue the next one behind the other's"
    end(on_one)
    assert round() == [second]
    claim(second, gpus[1])
    assert round() == []
    context.ingest.fail(first, "ended"), context.ingest.fail(second, "ended")
    late = add("cuda")
    end(second)
    assert round() == [third]
    end(first)
    assert round() == [late]
    store.close()


def test_a_scheduler_that_says_nothing_changes_nothing_in_the_database(settings: Settings) -> None:
    migrations.upgrade(settings.database_url)
    store = ServiceStore.open(settings.database_url)
    engine = PretendedEngine([ConnectedWorker("tcp://a:1", "cpu@a/9", {"cpu": 1})])
    roster = Roster(store)
    assert roster.look(cast(Engine, engine)) and not roster.look(cast(Engine, engine))

    def silent() -> list[ConnectedWorker]:
        raise OSError("no answer")

    engine.workers = silent  # type: ignore[method-assign]
    roster._asked_at = float("-inf")
    assert roster.look(cast(Engine, engine)) and roster.workers == []
    with store.read() as tx:
        assert tx.workers.get("cpu@a").connected
    store.close()


def test_who_leads_again_notes_who_is_there(settings: Settings) -> None:
    """At once, as whoever led meanwhile may have said that nobody is."""
    migrations.upgrade(settings.database_url)
    store = ServiceStore.open(settings.database_url)
    engine = cast(Engine, PretendedEngine([ConnectedWorker("tcp://a:1", "cpu@a/9", {"cpu": 1})]))
    roster = Roster(store)
    assert roster.look(engine)
    with store.write() as tx:
        tx.workers.see([])
    roster.clear()
    assert roster.look(engine)
    with store.read() as tx:
        assert tx.workers.get("cpu@a").connected
    store.close()


@pytest.mark.parametrize("process", ["", "/", "/7", ".", "..", "../7", "a/b/c", "cpu@a/7/"])
def test_workers_have_names_that_addresses_can_have(client: TestClient, process: str) -> None:
    """An empty one would be read at the address of the list."""
    for path, more in (("devices", {"devices": []}), (f"jobs/{uuid.uuid4()}/claim", {"claim_id": "a.b"})):
        answer = client.post(f"/v1/worker/{path}", json={"worker": process, **more})
        assert answer.status_code == 422 and "worker" in answer.text


def test_who_is_drained_or_busy_is_no_opening() -> None:
    """And only who is drained is not waited for."""
    a, b = (ConnectedWorker(f"tcp://{host}:1", f"cpu@{host}/9", {"cpu": 1}) for host in "ab")
    for drained, busy, free, any_one in (
        ((), (), 2, True),
        ((a,), (), 1, True),
        ((), (b,), 1, True),
        ((a,), (b,), 0, True),
        ((a, b), (), 0, False),
    ):
        workers = [replace(worker, draining=worker in drained) for worker in (a, b)]
        openings = Openings(workers, {worker.name for worker in busy})
        assert [openings.take("cpu") for _ in range(3)] == [number < free for number in range(3)]
        assert openings.has_any("cpu") is any_one and not openings.has_any("cuda")
