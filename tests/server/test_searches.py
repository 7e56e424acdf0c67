"""What a search gets to start from: trials of other jobs, also of those that run, and records."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, cast

import pytest
from fastapi.testclient import TestClient
from played_worker import claim, deliver
from store_rows import new_config, new_job, new_trial

from deuteron.server.context import ServiceContext
from deuteron.server.dispatch.link import Link
from deuteron.server.dispatch.run import Neighbours
from deuteron.server.searches import NEIGHBOURS, nearest_searches
from deuteron.server.store import ServiceStore
from deuteron.tuner import ConfigRecord, shape_key
from deuteron.tuner.experience import SearchLog, SearchPlace
from deuteron.tuner.http import ServiceError, ServiceUnreachable
from deuteron.tuner.records.nearest import shape_distance

SHAPE = {"M": 64, "N": 64}
Events = Callable[..., list[dict[str, Any]]]


def submit(client: TestClient) -> str:
    job = {"workload": "softmax", "shapes": [SHAPE], "budget": {"trials": 5}}
    return str(client.post("/v1/jobs", json=job).json()["id"])


def neighbours(client: TestClient, job_id: str, shape: dict[str, int] = SHAPE, **changed: str) -> list[dict[str, Any]]:
    asked = {"shape": shape_key(shape), "dtype": "f32", "device": "cpu/test", **changed}
    answer = client.get(f"/v1/worker/jobs/{job_id}/searches", params=asked)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["searches"])


def measured(client: TestClient, events: list[dict[str, Any]], shape: dict[str, int]) -> str:
    """A job that runs and has measured something of a shape."""
    job_id = submit(client)
    claim(client, job_id)
    for event in events:
        if "shape" in event:
            event["shape"] = shape
    deliver(client, job_id, events)
    return job_id


def let_in_before(client: TestClient, like: str, make_record: Callable[..., ConfigRecord]) -> None:
    """What an older version let in of the kernel of a job: a search and a record with a size of 0, and a record that
    is none."""
    context: ServiceContext = client.app.state.context  # type: ignore[attr-defined]
    with context.store.write() as tx:
        kernel_hash = tx.jobs.get(like).kernel_hash
        job = tx.jobs.add(new_job(kernel_name="softmax_kernel", kernel_hash=kernel_hash))
        tx.jobs.name_device(job.id, "cpu/test")
        tx.trials.append(job.id, new_trial(shape='{"M":0,"N":64}'))
        record = make_record({"M": 0, "N": 64}, kernel_hash=kernel_hash)
        named = {"kernel_name": record.kernel_name, "kernel_hash": kernel_hash, "device_key": "cpu/test"}
        for shape, body in ((record.shape_key, json.dumps(record.to_json())), ("M=-1", '{"shape": {"M": -1}}')):
            tx.configs.put(new_config(**named, shape_key=shape, body=body))


def test_a_run_gets_what_other_jobs_of_the_kernel_measured(
    client: TestClient, tune_events: Events, make_record: Callable[..., ConfigRecord]
) -> None:
    """Not what its own job did, nor what no search can have measured; and records that came without trials."""
    first, third = submit(client), submit(client)
    assert neighbours(client, first) == []
    claim(client, first)
    deliver(client, first, tune_events(trials=3)[:4])
    let_in_before(client, first, make_record)
    (known,) = neighbours(client, third)
    assert (known["kernel_name"], known["device"], known["dtype"]) == ("softmax_kernel", "cpu/test", "f32")
    assert known["shape"] == SHAPE
    assert known["kernel_hash"] == client.get(f"/v1/jobs/{first}").json()["kernel_hash"]
    found = [(one["config"]["BLOCK"], one["time_ns"]) for one in known["known"]]
    assert found == [(0, 1000.0), (1, 1010.0), (2, 1020.0)]
    assert neighbours(client, first) == []

    # A record that came in a bundle, as it were: two configurations.
    claim(client, third)
    deliver(client, third, [tune_events(trials=0)[1]])
    with_record = client.get("/v1/searches", params={"kernel": "softmax_kernel"}).json()["searches"]
    assert [(len(log["known"]), bool(log["toolchain"])) for log in with_record] == [(3, False), (2, True)]
    by_hash = client.get("/v1/searches", params={"kernel": known["kernel_hash"]}).json()["searches"]
    assert by_hash == with_record
    of_workload = client.get("/v1/searches", params={"kernel": "softmax"}).json()["searches"]
    assert of_workload == with_record, "the workload's name stands for its kernel, as elsewhere"
    # The record of a job says what its trials were measured with.
    deliver(client, first, [tune_events(trials=0)[1]], first=5)
    own, _ = client.get("/v1/searches", params={"kernel": "softmax_kernel"}).json()["searches"]
    assert len(own["known"]) == 3 and own["toolchain"] == with_record[1]["toolchain"]
    # So it does when another job's faster record has taken its place.
    deliver(client, third, [tune_events(trials=0, median_ns=1.0)[1]], first=2)
    (stored,) = (one for one in client.get("/v1/configs").json()["configs"] if one["shape"] == SHAPE)
    assert stored["time_ns"]["median"] == 1.0
    assert own in client.get("/v1/searches", params={"kernel": "softmax_kernel"}).json()["searches"]
    assert client.get("/v1/searches", params={"kernel": "other"}).json() == {"searches": []}
    assert client.get("/v1/searches").status_code == 422
    assert client.get("/v1/searches", params={"kernel": "other", "limits": 3}).status_code == 422


def test_times_are_those_of_race_and_final(client: TestClient, tune_events: Events) -> None:
    """As the search itself decided: of three that were screened at 1000, 1010 and 1020 the last is twice as fast as the
    default in the race."""
    events = tune_events(trials=3)[:4]
    for index, (screened, ratio) in enumerate(((1, 1.0), (3, 0.5))):
        pairs = {"ratio": ratio, "ratio_low": ratio, "ratio_high": ratio, "ratio_pairs": 40.0}
        place = {"group_index": float(index), "group_size": 2.0}
        trial = {**events[screened]["trial"], "id": f"raced-{index}", "phase": "race", "metrics": pairs | place}
        events.append({**events[screened], "trial": trial})
    measured(client, events, SHAPE)
    (known,) = neighbours(client, submit(client))
    found = {one["config"]["BLOCK"]: one["time_ns"] for one in known["known"]}
    assert found == {2: 500.0, 1: pytest.approx(1010 * (1 + 500 / 1020) / 2), 0: 1000.0}


@pytest.mark.parametrize("size", [-1.0, 0.5, 2e9, 1e30])
def test_a_race_of_any_size_that_an_older_version_let_in_is_none(
    client: TestClient, tune_events: Events, size: float
) -> None:
    """It counted up to that size at every reading: the service ran out of memory, or gave an internal error."""
    events = tune_events(trials=2)[:3]
    job_id = measured(client, events, SHAPE)
    pairs = {"ratio": 0.5, "ratio_low": 0.5, "ratio_high": 0.5, "ratio_pairs": 40.0, "group_index": 0.0}
    trial = {**events[2]["trial"], "id": "raced", "phase": "race", "metrics": {**pairs, "group_size": size}}
    context: ServiceContext = client.app.state.context  # type: ignore[attr-defined]
    with context.store.write() as tx:
        shape = json.dumps(SHAPE, sort_keys=True, separators=(",", ":"))
        row = {"trial_id": "raced", "phase": "race", "shape": shape, "dtype": "f32", "body": json.dumps(trial)}
        tx.trials.append(job_id, new_trial(**row))
    (log,) = client.get("/v1/searches", params={"kernel": "softmax_kernel"}).json()["searches"]
    assert {one["config"]["BLOCK"]: one["time_ns"] for one in log["known"]} == {0: 1000.0, 1: 1010.0}
    assert neighbours(client, submit(client)) == [log]


def test_the_nearest_are_given_not_the_newest(client: TestClient, tune_events: Events) -> None:
    """Random shapes in a random order: what is given is what sorting all of them says."""
    choose = random.Random(20261127)
    shapes = [{"M": 2 ** choose.randrange(12), "N": 2 ** choose.randrange(12)} for _ in range(40)]
    shapes = list({shape_key(shape): shape for shape in shapes}.values())
    for shape in shapes:
        measured(client, tune_events(trials=2)[:3], shape)
    asker = submit(client)
    for _ in range(20):
        wanted = {"M": choose.randrange(1, 5000), "N": choose.randrange(1, 5000)}
        given = [shape_distance(log["shape"], wanted) for log in neighbours(client, asker, wanted)]
        expected = sorted(shape_distance(shape, wanted) for shape in shapes)[:NEIGHBOURS]
        assert given == expected


def test_what_is_measured_elsewhere_counts_as_farther(client: TestClient, tune_events: Events) -> None:
    """Another dtype or device comes after the same one; other dims and other kinds of devices say nothing."""
    measured(client, tune_events(trials=2)[:3], SHAPE)
    asker = submit(client)
    assert len(neighbours(client, asker)) == len(neighbours(client, asker, dtype="f16")) == 1
    assert neighbours(client, asker, device="cuda/h200") == []
    assert neighbours(client, asker, {"M": 64}) == []
    assert len(neighbours(client, asker, device="cpu/other")) == 1


def test_records_without_trials_are_nearest_too(
    client: TestClient, make_record: Callable[..., ConfigRecord], tune_events: Events
) -> None:
    job_id = measured(client, tune_events(trials=1)[:2], SHAPE)
    kernel_hash = client.get(f"/v1/jobs/{job_id}").json()["kernel_hash"]
    context: ServiceContext = client.app.state.context  # type: ignore[attr-defined]
    sizes = [2**power for power in range(1, 20)]
    from deuteron.server.configs import put_record

    with context.store.write() as tx:
        for size in sizes:
            put_record(tx, make_record({"M": size, "N": 64}, "f32", kernel_hash=kernel_hash), None)
    place = SearchPlace("softmax_kernel", kernel_hash, "cpu/test", {"M": 2**18, "N": 64}, "f32")
    with context.store.read() as tx:
        found = nearest_searches(tx, place, limit=3)
        (alone,) = nearest_searches(tx, SearchPlace("other", "0" * 64, "cpu/test", SHAPE, "f32"), limit=3) or [None]
    assert [log.shape["M"] for log in found] == [2**18, 2**17, 2**19]
    assert alone is None


def test_of_a_very_long_search_the_beginning_is_looked_at(
    client: TestClient, tune_events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where another search of the job came before it: nobody waits for a million trials."""
    monkeypatch.setattr("deuteron.server.store.trials.MOST_LOOKED_AT", 4)
    job_id = measured(client, tune_events(trials=7)[:8], SHAPE)
    second = tune_events(trials=9)[1:10]
    for number, event in enumerate(second):
        event["shape"] = {"M": 128, "N": 64}
        event["trial"]["id"] = f"second-{number}"
    deliver(client, job_id, second, first=20)
    other = submit(client)
    found = {log["shape"]["M"]: [one["config"]["BLOCK"] for one in log["known"]] for log in neighbours(client, other)}
    assert found == {64: [0, 1, 2, 3], 128: [0, 1, 2, 3]}


def test_searches_are_listed_alike_in_both_databases(store: ServiceStore) -> None:
    """Newest jobs first, of each the searches as they began, each once, with the number of its first trial that worked;
    those of other kernels, of the job that asks and of jobs that have no device yet are not among them."""
    jobs = [new_job(kernel_name=name, kernel_hash=text * 64) for name, text in (("k", "a"), ("k", "b"), ("x", "a"))]
    jobs += [new_job(kernel_name="other", kernel_hash="c" * 64), new_job(kernel_name="k", kernel_hash="a" * 64)]
    with store.write() as tx:
        for job in jobs:
            tx.jobs.add(job)
        for job in jobs[:4]:
            tx.jobs.name_device(job.id, "cpu/test")
            tx.trials.append(job.id, new_trial(status="crashed", median_ns=None))
            for shape in ('{"N":2}', '{"N":1}'):
                for time_ns in (30.0, 20.0, 40.0, 10.0):
                    tx.trials.append(job.id, new_trial(shape=shape, median_ns=time_ns))
    with store.read() as tx:
        found = tx.trials.searches("k", "a" * 64, without=jobs[1].id)
        times = [time_ns for time_ns, _ in tx.trials.fastest(found[0], limit=3)]
    expected = [(jobs[at].id, shape, first) for at in (2, 0) for shape, first in (('{"N":2}', 2), ('{"N":1}', 6))]
    assert [(search.job_id, search.shape, search.first) for search in found] == expected
    assert {(search.device_key, search.dtype) for search in found} == {("cpu/test", "f32")}
    assert times == [10.0, 20.0, 30.0]


def test_shapes_and_jobs_that_there_are_not(client: TestClient) -> None:
    asked = {"shape": "M=64,N=64", "dtype": "f32", "device": "cpu/test"}
    job_id = submit(client)
    for changed, status in (({"shape": "M"}, 422), ({"shape": "M=1,M=2"}, 422), ({"dtype": ""}, 422)):
        answer = client.get(f"/v1/worker/jobs/{job_id}/searches", params={**asked, **changed})
        assert answer.status_code == status and answer.headers["content-type"] == "application/problem+json"
    assert client.get("/v1/worker/jobs/nobody/searches", params=asked).status_code == 404
    assert client.get(f"/v1/worker/jobs/{job_id}/searches", params={**asked, "shape": ""}).json() == {"searches": []}


@pytest.mark.parametrize("error", [ServiceUnreachable("away"), ServiceError("an older server", status=404, problem={})])
def test_a_search_does_not_wait_for_a_server_that_is_away(
    error: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts from what the server said before, and asks again after a while."""
    log = SearchLog("k", "0" * 64, "cpu/test", SHAPE, "f32", ())
    answers: list[object] = [(log,), error, ()]
    now = [0.0]
    monkeypatch.setattr("deuteron.server.dispatch.run.time.monotonic", lambda: now[0])

    class Answers:
        def searches(self, job_id: str, place: SearchPlace) -> object:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    known = Neighbours(cast(Link, Answers()), "job")
    place = SearchPlace("k", "0" * 64, "cpu/test", SHAPE, "f32")
    assert [list(known(place)) for _ in range(4)] == [[log]] * 4 and answers == [()]
    assert caplog.text.count("M=64,N=64 f32 starts from what") == 1
    now[0] = 61.0
    assert list(known(place)) == []


def test_a_place_that_was_measured_often_does_not_keep_others_out(client: TestClient, tune_events: Events) -> None:
    for _ in range(NEIGHBOURS + 1):
        measured(client, tune_events(trials=2)[:3], SHAPE)
    for size in (128, 256):
        measured(client, tune_events(trials=2)[:3], {"M": size, "N": 64})
    found = [log["shape"]["M"] for log in neighbours(client, submit(client))]
    assert found == [64, 64, 128, 256]


@pytest.mark.parametrize("shape", ["M", "M=", "M=0", "=4", "M=4,", "M=4,,N=4", "M=-4", "M=4 ,N=4", "M=4,M=8", "000"])
def test_what_is_no_shape_is_refused(client: TestClient, shape: str) -> None:
    asked = {"shape": shape, "dtype": "f32", "device": "cpu/test"}
    answer = client.get(f"/v1/worker/jobs/{submit(client)}/searches", params=asked)
    assert answer.status_code == 422 and "shape" in answer.json()["detail"]


@pytest.mark.parametrize("shape", [{}, {"M": 1}, {"größe": 2**63, "_n": 7}])
def test_shapes_as_workers_write_them_are_taken(client: TestClient, shape: dict[str, int]) -> None:
    assert neighbours(client, submit(client), shape) == []
