"""Submissions over HTTP: what is stored of one, what a key finds again, and what is refused."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from played_worker import JOB, submit
from stores import context_of, put

from deuteron.compiler.errors import DeviceError
from deuteron.server import Settings, submission
from deuteron.server.api.schemas.jobs import JobBody
from deuteron.server.checking import target_of
from deuteron.server.dispatch import NoDispatcher
from deuteron.server.fingerprints import fingerprints
from deuteron.server.store.idempotency import IdempotencyKeys
from deuteron.tuner import Budget, ConfigRecord, DeviceFingerprint, builtin_workload
from deuteron.tuner.codec import canonical_json

MakeRecord = Callable[..., ConfigRecord]


def test_a_submission_is_stored_with_its_kernel(client: TestClient) -> None:
    job = submit(client)
    assert job["state"] == "queued"
    assert job["progress"] == {"trials": 0, "screened": 0, "trials_total": 5}
    detail = client.get(job["links"]["self"]).json()
    assert detail["spec"]["workload"]["name"] == "softmax"
    assert detail["spec"]["shapes"] == [{"M": 64, "N": 64}]
    kernel = client.get(job["links"]["kernel"]).json()
    assert kernel["name"] == job["kernel_name"]
    assert "def " + kernel["name"] in kernel["text"]


def test_idempotency_key(client: TestClient) -> None:
    headers = {"Idempotency-Key": "key-1"}
    first = client.post("/v1/jobs", json=JOB, headers=headers)
    reordered = dict(reversed(JOB.items()))
    again = client.post("/v1/jobs", json=reordered, headers=headers)
    assert again.status_code == 202
    assert again.json()["id"] == first.json()["id"]
    other = client.post("/v1/jobs", json={**JOB, "seed": 9}, headers=headers)
    assert other.status_code == 422
    assert other.json()["type"].endswith(":conflict")
    assert first.json()["id"] in other.json()["detail"]
    assert len(client.get("/v1/jobs").json()["jobs"]) == 1


_BUDGETS: list[Any] = [
    *(None, {}, {"trials": 4}, {"trials": 50}, {"trials": 50.0, "seconds": 2}, {"trials": None, "seconds": None}),
    *({"trials": 100}, {"settle": False}, {"seconds": 60, "settle": True}, {"trials": 50, "settle": False}),
]


@pytest.mark.parametrize("budget", _BUDGETS)
@pytest.mark.parametrize("rest", [{}, {"seed": 0, "device": "cpu"}, {"seed": 3, "strategy": "random", "dtypes": None}])
def test_bodies_have_the_fingerprints_that_services_of_before_gave_them(budget: Any, rest: dict[str, Any]) -> None:
    """Those of 22 November on wrote every field with its default, and those of before did not know `settle`. A job
    without a budget had 50 trials then."""
    said = {**JOB, **rest, "budget": budget}
    body = JobBody.model_validate({name: value for name, value in said.items() if value is not None})
    whole = body.model_dump(mode="json", exclude_none=True)
    if budget is None:
        whole["budget"]["trials"] = 50
    without = {**whole, "budget": {k: v for k, v in whole["budget"].items() if k != "settle" or v}}
    written = [hashlib.sha256(canonical_json(document).encode()).hexdigest() for document in (whole, without)]
    assert fingerprints(body) == tuple(written)


def test_a_key_of_an_older_service_finds_its_job(client: TestClient) -> None:
    store, job = client.app.state.context.store, submit(client)  # type: ignore[attr-defined]
    body = {"workload": "softmax", "shapes": [{"M": 64, "N": 64}], "budget": {"trials": 4, "seconds": 20}}
    written = canonical_json({**body, "device": "cpu", "seed": 0, "budget": {"trials": 4, "seconds": 20.0}})
    with store.write() as tx:
        tx.idempotency.add("single-user", "o1", hashlib.sha256(written.encode()).hexdigest(), job["id"])
    again = client.post("/v1/jobs", json=body, headers={"Idempotency-Key": "o1"})
    assert (again.status_code, again.json()["id"]) == (202, job["id"])
    settling = {**body, "budget": {**body["budget"], "settle": True}}
    assert client.post("/v1/jobs", json=settling, headers={"Idempotency-Key": "o1"}).status_code == 422


def test_a_job_that_leaves_its_trials_out_gets_what_the_service_allows(
    settings: Settings, open_client: Callable[..., TestClient]
) -> None:
    client = open_client(replace(settings, max_trials=150))
    two = {"shapes": [{"M": 64, "N": 64}, {"M": 64, "N": 128}]}
    for changes, trials, total in (
        ({"budget": {}}, 150, 0),
        ({"budget": {"seconds": 1e9}}, 150, 0),
        ({"budget": {"seconds": 60}, **two}, 75, 0),
        ({"budget": {"seconds": 60}, **two, "dtypes": ["f32", "f16"]}, 37, 0),
        ({"budget": {"trials": 75}, **two}, 75, 150),
    ):
        job = submit(client, **changes)
        assert job["progress"]["trials_total"] == total
        assert client.get(job["links"]["self"]).json()["spec"]["budget"]["trials"] == trials
    many = {"budget": {"seconds": 1}, "shapes": [{"M": 8, "N": n} for n in range(1, 152)]}
    assert client.post("/v1/jobs", json={**JOB, **many}).status_code == 422


def test_a_job_without_a_budget_has_that_of_the_command_line(client: TestClient) -> None:
    job = client.post("/v1/jobs", json={name: value for name, value in JOB.items() if name != "budget"}).json()
    assert job["progress"]["trials_total"] == Budget().trials


def test_what_is_given_twice_is_tuned_once(client: TestClient) -> None:
    job = submit(client, shapes=[{"M": 64, "N": 64}, {"M": 8, "N": 8}, {"N": 64, "M": 64}], dtypes=["f32", "float32"])
    assert job["progress"]["trials_total"] == 2 * 5
    spec = client.get(job["links"]["self"]).json()["spec"]
    assert (spec["shapes"], spec["dtypes"]) == ([{"M": 64, "N": 64}, {"M": 8, "N": 8}], ["f32"])


def test_bad_idempotency_key(client: TestClient) -> None:
    response = client.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "a b"})
    assert (response.status_code, response.json()["type"].split(":")[-1]) == (
        400,
        "bad-idempotency-key",
    )


@pytest.mark.parametrize(
    ("changes", "status", "fragment"),
    [
        ({"workload": "soft"}, 422, "unknown workload 'soft'"),
        ({"shapes": [{"M": 4}]}, 422, "lacks 'N'"),
        ({"shapes": [{"M": 4, "N": -1}]}, 422, "N=-1"),
        ({"shapes": []}, 422, "body.shapes"),
        ({"dtypes": ["f99"]}, 422, "f99"),
        ({"device": "tpu"}, 422, "'tpu' is not a device"),
        ({"budget": {"trials": 0}}, 422, "body.budget.trials"),
        ({"strategy": "magic"}, 422, "magic"),
        ({"color": "red"}, 422, "body.color"),
        ({"budget": {"trials": 10**9}}, 422, "trials"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else None,
)
def test_bad_submission(client: TestClient, changes: dict[str, object], status: int, fragment: str) -> None:
    response = client.post("/v1/jobs", json={**JOB, **changes})
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert fragment in response.json()["detail"]
    assert client.get("/v1/jobs").json()["jobs"] == []


def test_shapes_and_names_that_are_too_long_are_refused_when_they_are_submitted(client: TestClient) -> None:
    softmax = builtin_workload("softmax").to_json()
    dims = {f"a_long_name_of_a_dim_{number}": 10**6 for number in range(20)}
    wide = {**softmax, "dims": ["M", "N", *dims], "shapes": []}
    long = "softmax_kernel" + "x" * 200
    source = softmax["kernel"]["source"].replace("softmax_kernel", long)  # type: ignore[index]
    for workload, shape, where in (
        (wide, {"M": 8, "N": 8, **dims}, "the shape M=8,N=8,a_long"),
        ({**softmax, "kernel": {"name": long, "source": source}}, {"M": 8, "N": 8}, "name: 'softmax_kernelxx"),
    ):
        answer = client.post("/v1/jobs", json={"workload": workload, "shapes": [shape]})
        assert answer.status_code == 422 and answer.json()["detail"].startswith(where), answer.text
    assert client.get("/v1/jobs").json()["jobs"] == []


def test_one_key_at_two_servers_makes_one_job(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other server's job is stored after this one looked for it."""
    body, headers = {"workload": "softmax", "shapes": [{"M": 8, "N": 8}]}, {"Idempotency-Key": "k"}
    first = client.post("/v1/jobs", json=body, headers=headers).json()["id"]
    find, looks = IdempotencyKeys.find, itertools.count()

    def blind(self: IdempotencyKeys, *key: str) -> str | None:
        return None if next(looks) < 2 else find(self, *key)

    monkeypatch.setattr(IdempotencyKeys, "find", blind)
    again = client.post("/v1/jobs", json=body, headers=headers)
    assert (again.status_code, again.json()["id"]) == (202, first)
    assert len(client.get("/v1/jobs").json()["jobs"]) == 1


@pytest.mark.parametrize(
    ("present", "taken"),
    [
        (["cpu", "cuda:0"], {"cpu", "cuda", "cuda:0"}),
        (["cpu"], {"cpu"}),
        (["cuda:1"], {"cuda", "cuda:1"}),
        (None, {"cpu", "cuda", "cuda:0", "cuda:1"}),
    ],
)
def test_jobs_are_for_devices_that_are_there(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, present: list[str] | None, taken: set[str]
) -> None:
    """Where workers may join later, for all."""
    context = context_of(client)
    monkeypatch.setattr(NoDispatcher, "devices", lambda _dispatcher: present)
    for device in ("cpu", "cuda", "cuda:0", "cuda:1"):
        with nullcontext() if device in taken else pytest.raises(DeviceError, match="is not present on this service"):
            submission._check_device(context, device)


def test_jobs_are_checked_for_gpus_that_workers_announced(client: TestClient, make_record: MakeRecord) -> None:
    """A record that was brought from elsewhere says nothing of the limits here."""
    context = context_of(client)
    here, elsewhere = (DeviceFingerprint("cuda", name, sm_count=1, compute_capability=(7, 5)) for name in ("T4", "RTX"))
    put(client, make_record({"M": 64, "N": 64}, device=elsewhere))
    unknown = target_of(context, "cuda")
    assert (unknown.properties.name, unknown.properties.compute_capability) == ("cuda", None)
    with context.store.write() as tx:
        tx.devices.announce(
            key=here.key, kind="cuda", name="T4", fingerprint=json.dumps(here.to_json()), worker="cuda:0@h/1"
        )
    assert (target_of(context, "cuda").properties.name, target_of(context, "cuda").target) == ("T4", "cuda:75")
    assert target_of(context, "cpu").target == "cpu"
