"""A service trains predictors by itself once jobs of a kernel have ended, and answers with them."""

from __future__ import annotations

import errno
import json
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from learning_service import H200, KERNEL, MATMUL, TABLE, Fake, Service
from msgspec.structs import replace as with_fields
from optional import loads

from deuteron.compiler import extras
from deuteron.server import Settings
from deuteron.server.configs import put_record
from deuteron.server.dispatch.ingest import Delivery
from deuteron.server.dispatch.supervisor import DaskDispatcher
from deuteron.server.learning import reading
from deuteron.server.learning.memory import FILE_NAME as MEMORY
from deuteron.server.learning.memory import TrainingMemory
from deuteron.server.learning.messages import Train, Trained
from deuteron.server.learning.process import Stopped, TrainingFailed, train_in_child
from deuteron.server.learning.reading import has_enough_shapes, known_kernel
from deuteron.server.learning.trainer import Trainer
from deuteron.server.learning.turns import LATEST_S, QUIET_S, REST, Turns
from deuteron.server.predictors import FILE_NAME
from deuteron.server.searches import known_searches
from deuteron.server.store import JobState
from deuteron.tuner import ConfigRecord, DeviceFingerprint, write_bundle
from deuteron.tuner.events import JobFinished
from deuteron.tuner.learn import groups_of_logs, learn
from deuteron.tuner.records import Predictor, read_bundle

needs_lightgbm = pytest.mark.skipif(not loads("lightgbm"), reason="needs the extra learn, and the system's libgomp1")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not asked of a fake."""
    monkeypatch.setattr(extras, "is_installed", lambda package: True)


@pytest.fixture
def service(client: TestClient) -> Service:
    made = Service(client)
    assert made.trainer.begin() and made.trainer.step() is None, "nothing waits, nothing wakes"
    return made


def test_a_kernel_is_trained_once_its_jobs_are_quiet(service: Service) -> None:
    service.run_job(slice(0, 4))
    assert service.after(QUIET_S + 1) == [], "four shapes are too few"
    service.run_job(slice(4, 6))
    assert service.after(QUIET_S - 1) == []
    service.run_job(slice(6, 12))
    assert service.after(QUIET_S - 1) == [], "the second one began the time anew"
    assert service.after(2) == [KERNEL]
    assert service.trainer.step() is None
    text = service.client.get("/metrics").text
    assert 'deuteron_trainings_total{result="learnt"} 1' in text and "deuteron_training_seconds_total" in text
    assert "deuteron_last_training_timestamp_seconds" in text


def test_a_job_that_ended_is_told_of_when_others_can_see_it(service: Service) -> None:
    """Whoever looks at once would take it for one that runs, and not look again."""
    job_id, seen = service.run_job(end=False), []

    def ended(kernel_hash: str) -> None:
        with service.context.store.read() as tx:
            seen.append((kernel_hash, tx.jobs.get(job_id).state))

    ingest = replace(service.context.ingest, ended=ended)
    ingest.deliver(job_id, claim_id="t.a", events=[Delivery(10_000, JobFinished((), 1.0).to_json())])
    assert seen == [(KERNEL, JobState.SUCCEEDED)]


def test_what_did_not_change_is_not_trained_again(service: Service) -> None:
    service.run_job()
    assert service.after(QUIET_S) == [KERNEL]
    write_bundle(service.context.settings.home / FILE_NAME, [])
    job_id = service.client.post("/v1/jobs", json={"workload": "matmul", "device": "cuda"}).json()["id"]
    service.context.ingest.cancel(job_id)  # ends without a trial
    assert service.after(QUIET_S + LATEST_S) == [KERNEL]
    assert service.trainer.begin(), "as after a restart"
    assert service.after(0) == [KERNEL] and service.after(QUIET_S + LATEST_S) == [KERNEL]
    service.run_job(slice(0, 1))
    assert service.after(QUIET_S + LATEST_S) == [KERNEL] * 2


def test_what_ended_while_nobody_led_is_trained(client: TestClient) -> None:
    service = Service(client)
    service.run_job()
    assert service.trainer.begin()
    assert service.after(0) == [] and service.after(QUIET_S) == [KERNEL]
    # Predictors that somebody removed, and a memory that cannot be read.
    assert service.trainer.begin()
    assert service.after(0) == [KERNEL] and service.after(QUIET_S) == [KERNEL] * 2
    home = service.context.settings.home
    write_bundle(home / FILE_NAME, [])
    (home / MEMORY).write_text("{")
    assert service.trainer.begin()
    assert service.after(0) == [KERNEL] * 2 and service.after(QUIET_S) == [KERNEL] * 3


def test_a_trainer_that_fails_is_asked_again_only_about_new_trials(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    service.fake.answer = TrainingFailed("was ended by SIGKILL")
    service.run_job()
    assert service.after(QUIET_S) == [KERNEL]
    assert service.after(LATEST_S) == [KERNEL]
    assert [r.levelname for r in caplog.records if "SIGKILL" in r.message] == ["WARNING"]
    assert service.trainer.begin(), "as after a restart"
    assert service.after(0) == [KERNEL] and service.after(LATEST_S) == [KERNEL]
    assert 'deuteron_trainings_total{result="failed"} 1' in service.client.get("/metrics").text
    service.fake.answer = Fake().answer  # type: ignore[assignment]
    service.run_job(slice(0, 1))
    assert service.after(QUIET_S) == [KERNEL] * 2
    assert service.client.get(f"/v1/jobs?state={JobState.SUCCEEDED}").status_code == 200


def test_what_a_full_disk_did_not_take_is_trained_again(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    service.run_job()
    with monkeypatch.context() as patched:
        patched.setattr(TrainingMemory, "note", full)
        assert service.after(QUIET_S) == [KERNEL]
    assert "predictors are trained later" in caplog.text
    assert service.after(QUIET_S) == [KERNEL] * 2 and service.after(LATEST_S) == [KERNEL] * 2


def test_one_that_is_stopped_knows_nothing(service: Service) -> None:
    service.run_job()
    service.fake.answer = Stopped("stopped")
    assert service.after(QUIET_S) == [KERNEL]
    assert service.trainer.begin()
    assert service.after(0) == [KERNEL] and service.after(QUIET_S) == [KERNEL] * 2


def test_without_the_extra_it_is_said_once(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(extras, "is_installed", lambda package: package != "lightgbm")
    service = Service(client)
    with caplog.at_level(logging.INFO, "deuteron.learning"):
        assert not service.trainer.begin() and not service.trainer.begin()
    assert caplog.text.count("does not train predictors by itself") == 1 and "deuteron[learn]" in caplog.text
    service.trainer.start()
    assert service.trainer._thread is None


def test_where_it_does_not_load_nothing_else_is_tried(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    service.fake.answer = Trained(unavailable="LightGBM cannot be loaded: libgomp.so.1 (apt-get install libgomp1)")
    with caplog.at_level(logging.INFO, "deuteron.learning"):
        service.run_job()
        assert service.after(QUIET_S) == [KERNEL]
    assert caplog.text.count("libgomp1") == 1 and not service.trainer.begin()


def test_a_setting_turns_it_off(settings: Settings, open_client: Callable[..., TestClient]) -> None:
    service = Service(open_client(replace(settings, learn_seconds=0)))
    assert not service.trainer.begin()
    service.run_job()
    assert service.after(LATEST_S) == []


def test_a_server_that_does_not_lead_trains_nothing(client: TestClient) -> None:
    """Neither one that only answers, whose dispatcher never begins, nor one that another one leads."""
    service = Service(client)
    service.run_job()
    assert service.trainer._thread is None and service.trainer._turns.seconds_left(0) is None
    service.trainer.begin()
    service.trainer.stop()
    service.run_job(slice(0, 1))
    assert service.trainer._turns.seconds_left(0) is None


def test_it_trains_while_it_leads(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher begins it when it has the lock, and ends it with that."""
    context, calls = service.context, []
    dispatcher = DaskDispatcher(context.settings, context.store, context.ingest, "", context.trainer)
    for name in ("start", "stop"):
        monkeypatch.setattr(Trainer, name, lambda self, name=name: calls.append((name, dispatcher._lock.held())))
    monkeypatch.setattr(dispatcher, "_recover", lambda: None)

    def open_engine(url: str) -> None:
        calls.append(("engine", dispatcher._lock.held()))
        dispatcher._closing.set()
        raise OSError("no workers in this test")

    monkeypatch.setattr(dispatcher, "_open", open_engine)
    dispatcher._run("http://localhost")
    assert calls == [("start", True), ("engine", True), ("stop", True)]


def test_a_job_that_another_server_was_told_of_counts(service: Service) -> None:
    from deuteron.server.dispatch.engine import Dispatched

    class Done:
        status = "finished"

        def done(self) -> bool:
            return True

        def exception(self) -> None:
            return None

        def result(self) -> str:
            return "delivered"

    context = service.context
    service.trainer._leads = False  # so that what is delivered is not heard of
    job_id = service.run_job()
    assert service.trainer.begin() and service.after(0) == []
    service.trainer._turns = Turns()
    dispatcher = DaskDispatcher(context.settings, context.store, context.ingest, "", context.trainer)
    dispatcher._dispatched[job_id] = Dispatched("ticket", Done())  # type: ignore[arg-type]
    dispatcher._reap()
    assert service.after(QUIET_S) == [KERNEL]


def test_the_thread_wakes_by_itself_and_ends(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    from deuteron.server.learning import turns

    monkeypatch.setattr(turns, "QUIET_S", 0.01)
    context = client.app.state.context  # type: ignore[attr-defined]
    done = threading.Event()

    def train(request: Train, stopping: threading.Event) -> Trained:
        done.set()
        assert stopping.wait(60)
        raise Stopped("stopped")

    context.trainer._train = train
    context.trainer.start()
    Service.run_job(plain(client))
    assert done.wait(60)
    context.trainer.stop()
    assert context.trainer._thread is None and not [t for t in threading.enumerate() if t.name == "deuteron-learn"]


def plain(client: TestClient) -> Service:
    """Without a fake."""
    made = object.__new__(Service)
    made.client = client
    return made


def test_turns() -> None:
    waiting = Turns()
    assert waiting.take(0) is None and waiting.seconds_left(0) is None
    waiting.note("a", 0)
    waiting.note("b", 1)
    assert waiting.seconds_left(2) == QUIET_S - 2
    assert waiting.take(QUIET_S - 0.1) is None
    assert [waiting.take(QUIET_S + 1) for _ in range(3)] == ["a", "b", None]
    for now in range(0, int(LATEST_S) + 5, 5):
        waiting.note("a", now)
        assert (waiting.take(now) == "a") == (now == LATEST_S), "never quiet, and waited for no longer"
    waiting = Turns()
    waiting.rest("a", 100, took=20)
    waiting.note("a", 101)
    waiting.note("b", 102)
    assert waiting.take(102 + QUIET_S) == "b" and waiting.take(99 + 20 * REST) is None
    assert waiting.take(100 + 20 * REST) == "a"


@needs_lightgbm
def test_lookups_predict_after_a_real_training(
    service: Service,
    make_record: Callable[..., ConfigRecord],
    predictor: Callable[..., Predictor],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The child process, and what it leaves: the predictor that `deuteron learn` would make, beside that of others."""
    context, home = service.context, service.context.settings.home
    caplog.set_level(logging.INFO, "deuteron.learning")
    service.trainer._train = train_in_child
    others = [predictor(kernel_hash="cd" * 32), predictor(kernel_hash=KERNEL)]
    write_bundle(home / FILE_NAME, [], predictors=others)
    device = DeviceFingerprint.from_key(H200)
    named = {"kernel_hash": KERNEL, "kernel_name": "matmul_kernel", "device": device}
    asked = {"kernel": KERNEL, "device": H200, "dtype": "f16", "shape": "M=512,N=4096,K=4096"}

    def trained() -> Predictor:
        """The one that is new in the home, which is that of `deuteron learn`."""
        with context.store.read() as tx:
            (group,) = groups_of_logs(known_searches(tx, KERNEL), KERNEL)
        expected = learn(group, MATMUL)
        held = {p.key: p for p in read_bundle(home / FILE_NAME).predictors()}
        found = held.pop(expected.key)
        assert sorted(held.values(), key=lambda p: p.key) == sorted(others, key=lambda p: p.key), "these stay"
        assert with_fields(found, id=expected.id, created_at=expected.created_at) == expected
        assert found.toolchain == record.toolchain, "that of the jobs"
        return found

    def lookup() -> str:
        service.context.store.generation += 1  # what was answered a moment ago holds for a second
        return str(service.client.get("/v1/configs/lookup", params=asked).json()["match"])

    for part, pays in ((slice(0, 8), False), (slice(8, 12), True)):
        job_id = service.run_job(part)
        record = make_record(dict(TABLE.shapes[part.start]), "f16", **named)
        with context.store.write() as tx:
            put_record(tx, record, job_id)
        service.after(QUIET_S)
        assert trained().accuracy.pays == pays
        assert ("no better than the nearest shape or the default" in caplog.text) == (not pays)
        assert (lookup() == "predicted") == pays
        caplog.clear()
    assert service.trainer.trained_at is not None
    kept = json.loads((home / MEMORY).read_text())["kernels"]
    assert kept == {KERNEL: {"predictors": 1, "trials": sum(map(len, TABLE.times))}}


def test_each_device_has_its_share_and_each_shape_its_largest_search(
    settings: Settings,
    database_url: str,
    open_client: Callable[..., TestClient],
    monkeypatch: pytest.MonkeyPatch,
    make_record: Callable[..., ConfigRecord],
) -> None:
    service = Service(open_client(replace(settings, database_url=database_url)))
    context = service.context

    def logs() -> list[tuple[int, int]]:
        with context.store.read() as tx:
            known = known_kernel(tx, KERNEL)
        assert known is not None and known.workload == MATMUL
        return [(TABLE.shapes.index(dict(log.shape)), len(log.known)) for log in known.logs]

    sizes = [len(row) for row in TABLE.times]
    service.run_job(slice(0, 2))
    job_id = service.run_job(slice(1, 3))
    with context.store.read() as tx:
        assert tx.jobs.screened() == {KERNEL: tx.jobs.screened_of(KERNEL)} == {KERNEL: sum(sizes[:3]) + sizes[1]}
        assert len(tx.trials.searched(job_id)) == 2 and not has_enough_shapes(tx, KERNEL)
    assert sorted(logs()) == [(place, sizes[place]) for place in range(3)]
    record = make_record(dict(TABLE.shapes[3]), "f16", kernel_hash=KERNEL, kernel_name="matmul_kernel")
    other = make_record({"M": 4}, "f16", kernel_hash=KERNEL, kernel_name="matmul_kernel")
    with context.store.write() as tx:
        put_record(tx, record, None)
        put_record(tx, other, None)
    assert sorted(logs()) == [*((place, sizes[place]) for place in range(3)), (3, 2)], "imported; other dims are not"
    monkeypatch.setattr(reading, "MOST_TRIALS", 9)
    assert sorted(logs()) == [(0, 3), (1, 3), (2, 3), (3, 2)], "the same share for each; another device has its own"
    monkeypatch.setattr(reading, "MOST_SHAPES", 2)
    assert sorted(logs()) == [(1, 4), (2, 4), (3, 2)], "the newest"
    monkeypatch.setattr(reading, "MOST_TIMINGS", 3)
    assert sorted(logs()) == [(1, 3), (3, 2)]
    monkeypatch.setattr(reading, "MOST_JOBS", 0)
    with context.store.read() as tx:
        assert known_kernel(tx, KERNEL) is None


def test_a_memory_is_written_whole(tmp_path: Path) -> None:
    memory = TrainingMemory(tmp_path)
    assert memory.is_new("a", 3) and not memory.is_new("a", 0)
    memory.note("a", 3, 0)
    memory.note("b", 4, 2)
    assert not memory.is_new("a", 3) and memory.is_new("a", 4)
    again = TrainingMemory(tmp_path)
    assert not again.is_new("a", 3) and again.is_new("b", 4), "its predictors are gone"
    assert [path.name for path in tmp_path.iterdir()] == [MEMORY]
