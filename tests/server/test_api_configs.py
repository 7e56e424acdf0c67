"""Lookups over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from fastapi.testclient import TestClient
from stores import context_of, put

from deuteron.server import ServiceStore, Settings
from deuteron.server.configs import put_record
from deuteron.server.lookups import TRUST_SECONDS
from deuteron.tuner import ConfigRecord, DeviceFingerprint

HASH = "a" * 64
H200 = DeviceFingerprint("cuda", "NVIDIA H200", "10de:2335", 132, 141 << 30, (9, 0), None, 700.0)

MakeRecord = Callable[..., ConfigRecord]


def look(client: TestClient, **changes: str) -> dict[str, Any]:
    parameters = {"kernel": HASH, "device": "cpu", "shape": "M=64,N=64", **changes}
    response = client.get("/v1/configs/lookup", params=parameters)
    assert response.status_code == 200, response.text
    return dict(response.json())


def test_exact_nearest_and_default(client: TestClient, make_record: MakeRecord) -> None:
    exact = make_record({"M": 64, "N": 64}, block=64)
    near = make_record({"M": 4096, "N": 64}, block=4096)
    put(client, exact, near)
    answer = look(client)
    assert (answer["match"], answer["config"]["BLOCK"]) == ("exact", 64)
    assert answer["record"] == json.loads(json.dumps(exact.to_json()))
    answer = look(client, shape="M=3000,N=64")
    assert (answer["match"], answer["config"]["BLOCK"]) == ("nearest_shape", 4096)
    assert "M=4096,N=64" in answer["reason"]
    answer = look(client, dtype="bf16")
    assert (answer["match"], answer["config"], answer["record"]) == ("default", {}, None)


@pytest.mark.parametrize("device", ["cpu", "CPU"])
@pytest.mark.parametrize("dtype", ["f32", "fp32", "float32", "torch.float32"])
def test_dtypes_and_kinds_of_devices_meet_however_they_are_spelled(
    client: TestClient, make_record: MakeRecord, device: str, dtype: str
) -> None:
    """Else the answer was `default`, as for a kernel that nobody tuned."""
    put(client, make_record({"M": 64, "N": 64}, block=64))
    for _ in range(2):  # found, and remembered
        assert look(client, device=device, dtype=dtype)["match"] == "exact"
    asked = {"kernel": HASH, "device": device, "shape": {"M": 64, "N": 64}, "dtype": dtype}
    (answer,) = client.post("/v1/configs/lookup", json={"lookups": [asked]}).json()["answers"]
    assert answer["match"] == "exact"


def test_a_dtype_that_is_none_is_refused(client: TestClient, make_record: MakeRecord) -> None:
    put(client, make_record({"M": 64, "N": 64}))
    asked = {"kernel": HASH, "device": "cpu", "shape": "M=64,N=64", "dtype": "f23"}
    refused = client.get("/v1/configs/lookup", params=asked)
    assert (refused.status_code, refused.json()["detail"]) == (422, "dtype: dtype f23 has no counterpart in kernels")
    assert "bf16" in refused.json()["hint"]
    assert look(client, dtype="")["match"] == "default", "some kernels have none"


@pytest.mark.parametrize(
    "address", ["/v1/jobs?limit=1&limit=2", "/v1/configs?kernel=a&kernel=b", "/v1/configs/lookup?shape=M=1&shape=M=2"]
)
def test_a_parameter_that_is_given_twice_is_refused(client: TestClient, address: str) -> None:
    """The last one won silently, and the answer looked like one."""
    refused = client.get(address)
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:deuteron:problem:repeated-parameter")
    assert "given more than once" in refused.json()["detail"]


def test_all_lines_of_if_none_match_count(client: TestClient, make_record: MakeRecord) -> None:
    put(client, make_record({"M": 64, "N": 64}))
    for address in ("/v1/bundles/latest", "/v1/bundles/latest/pieces"):
        etag = client.get(address).headers["etag"]
        for lines in (('"a"', etag), (etag, '"a"')):
            known = [("If-None-Match", line) for line in lines]
            assert client.get(address, headers=known).status_code == 304


def test_a_new_record_is_seen_at_once(client: TestClient, make_record: MakeRecord) -> None:
    put(client, make_record({"M": 64, "N": 64}, block=64))
    assert look(client)["config"]["BLOCK"] == 64
    put(client, make_record({"M": 64, "N": 64}, block=256, median_ns=500.0))
    assert look(client)["config"]["BLOCK"] == 256


def test_a_record_of_this_process_is_seen_where_the_answer_was_remembered(
    client: TestClient, make_record: MakeRecord
) -> None:
    """The lookups' clock stands still: what was remembered is as fresh as it can be, but this process has written."""
    context = context_of(client)
    context.lookups._clock = lambda: 5.0
    put(client, make_record({"M": 64, "N": 64}, block=64))
    for _ in range(2):
        assert look(client, shape="M=96,N=64")["match"] == "nearest_shape"
    put(client, make_record({"M": 96, "N": 64}, block=96))
    assert look(client, shape="M=96,N=64")["match"] == "exact"


def test_another_toolchain_is_flagged(client: TestClient, make_record: MakeRecord) -> None:
    put(client, make_record({"M": 64, "N": 64}))
    mine = {**make_record({"M": 64, "N": 64}).toolchain, "deuteron": "9"}
    answer = look(client, toolchain=json.dumps(mine))
    assert answer["match"] == "other_toolchain"
    assert "another toolchain, not verified with this one: deuteron 0.1.0, here 9" in answer["reason"]
    difference = {"name": "deuteron", "recorded": "0.1.0", "current": "9"}
    assert answer["toolchain_differences"] == [difference]
    question = {"kernel": HASH, "device": "cpu", "shape": {"M": 64, "N": 64}}
    asked = [{**question, "toolchain": mine}, {**question, "toolchain": {**mine, "deuteron": "0.1.0"}}, question]
    answers = client.post("/v1/configs/lookup", json={"lookups": asked}).json()["answers"]
    assert [a["toolchain_differences"] for a in answers] == [[difference], [], None]
    assert [a["match"] for a in answers] == ["other_toolchain", "exact", "exact"]
    assert "not compared" in answers[2]["reason"]
    bad = client.get(
        "/v1/configs/lookup",
        params={"kernel": HASH, "device": "cpu", "shape": "M=1", "toolchain": "{"},
    )
    assert bad.status_code == 422


@pytest.mark.parametrize("name", ["NVIDIA H200", "NVIDIA_H200_141GB_HBM3e", "H200", "cuda", H200.key])
def test_device_names_meet(client: TestClient, make_record: MakeRecord, name: str) -> None:
    put(client, make_record({"M": 64, "N": 64}, device=H200))
    assert look(client, device=name)["match"] == "exact"
    elsewhere = look(client, device="NVIDIA H100")
    assert elsewhere["match"] == "default"
    assert f"the kernel was tuned for {H200.key} (f32)" in elsewhere["reason"]


def test_where_a_kernel_was_tuned_meanwhile_is_seen(client: TestClient, make_record: MakeRecord) -> None:
    """An answer without a record names the devices of today, not those of the first time it was asked."""
    assert "no record of the kernel" in look(client, device="NVIDIA H100")["reason"]
    put(client, make_record({"M": 64, "N": 64}, device=H200))
    assert f"tuned for {H200.key} (f32)" in look(client, device="NVIDIA H100")["reason"]


@pytest.mark.parametrize(
    ("shape", "detail"), [("M=64", "the shape M=64 lacks 'N'"), ("M=64,N=64,K=1", "has the unknown dim 'K'")]
)
def test_a_shape_over_other_dims_is_refused(
    client: TestClient, make_record: MakeRecord, shape: str, detail: str
) -> None:
    put(client, make_record({"M": 64, "N": 64}))
    for _ in range(2):  # from the store, then from memory
        response = client.get("/v1/configs/lookup", params={"kernel": HASH, "device": "cpu", "shape": shape})
        assert response.status_code == 422
        assert detail in response.json()["detail"]
        assert "M, N" in response.json()["hint"]
    sizes = dict(part.split("=") for part in shape.split(","))
    question = {"kernel": HASH, "device": "cpu", "shape": {"M": 64, "N": 64}}
    body = {"lookups": [question, {**question, "shape": {dim: int(size) for dim, size in sizes.items()}}]}
    response = client.post("/v1/configs/lookup", json=body)
    assert response.status_code == 422
    assert response.json()["detail"].startswith("lookups[1]: ")


@pytest.mark.parametrize("device", ["cpu", "NVIDIA H200"])
def test_dims_are_known_before_anything_was_tuned_here(
    client: TestClient, make_record: MakeRecord, device: str
) -> None:
    """Of a built-in kernel always; of any other once it was tuned for some device."""

    def ask(kernel: str, shape: str) -> Any:
        return client.get("/v1/configs/lookup", params={"kernel": kernel, "device": device, "shape": shape})

    answer = ask("softmax", "M=4")
    assert (answer.status_code, answer.json()["hint"]) == (422, "dims of softmax: M, N")
    assert ask("softmax", "M=4,N=4").json()["match"] == "default"
    assert ask(HASH, "Q=4").status_code == 200, "nobody knows its dims"
    put(client, make_record({"M": 64, "N": 64}, device=H200))
    assert ask(HASH, "Q=4").status_code == 422


def test_a_batch_names_the_kernel_that_is_unknown(client: TestClient) -> None:
    question = {"device": "cpu", "shape": {"M": 4, "N": 4}}
    body = {"lookups": [{**question, "kernel": "softmax"}, {**question, "kernel": "sofmax"}]}
    answer = client.post("/v1/configs/lookup", json=body)
    assert (answer.status_code, answer.json()["detail"]) == (404, "lookups[1]: there is no kernel 'sofmax'")


def test_a_kind_that_stands_for_several_devices_is_ambiguous(client: TestClient, make_record: MakeRecord) -> None:
    h100 = msgspec.structs.replace(H200, name="NVIDIA H100", memory_bytes=80 << 30)
    put(client, *(make_record({"M": 1, "N": 1}, device=device) for device in (H200, h100)))
    response = client.get("/v1/configs/lookup", params={"kernel": HASH, "device": "cuda", "shape": "M=1,N=1"})
    assert response.status_code == 422
    assert H200.key in response.json()["hint"]


def test_kernels_are_found_by_name(client: TestClient, make_record: MakeRecord) -> None:
    client.post("/v1/jobs", json={"workload": "softmax", "shapes": [{"M": 8, "N": 8}]})
    stored = client.get("/v1/jobs").json()["jobs"][0]
    put(client, make_record({"M": 64, "N": 64}, kernel_hash=stored["kernel_hash"]))
    assert look(client, kernel="softmax")["match"] == "exact"
    assert look(client, kernel=stored["kernel_name"])["match"] == "exact"
    response = client.get("/v1/configs/lookup", params={"kernel": "nobody", "device": "cpu", "shape": "M=1"})
    assert response.status_code == 404
    assert "no kernel 'nobody'" in response.json()["detail"]


def test_strict_refuses_everything_but_exact(client: TestClient, make_record: MakeRecord) -> None:
    put(client, make_record({"M": 64, "N": 64}))
    assert look(client, strict="true")["match"] == "exact"
    response = client.get(
        "/v1/configs/lookup",
        params={"kernel": HASH, "device": "cpu", "shape": "M=65,N=64", "strict": "true"},
    )
    assert response.status_code == 404
    assert response.json()["type"].endswith(":record-not-found")


@pytest.mark.parametrize("shape", ["M", "M=x", "M=1;N=2", "=4", "M=-1", "M=" + "9" * 5000])
def test_bad_shape(client: TestClient, shape: str) -> None:
    response = client.get("/v1/configs/lookup", params={"kernel": HASH, "device": "cpu", "shape": shape})
    assert response.status_code == 422
    assert response.json()["hint"]


def test_batch(client: TestClient, make_record: MakeRecord) -> None:
    put(client, make_record({"M": 64, "N": 64}))
    question = {"kernel": HASH, "device": "cpu", "dtype": "f32"}
    body = {
        "lookups": [
            {**question, "shape": {"M": 64, "N": 64}},
            {**question, "shape": {"M": 8, "N": 64}},
            {**question, "shape": {"M": 1, "N": 64}},
        ]
    }
    answers = client.post("/v1/configs/lookup", json=body).json()["answers"]
    assert [answer["match"] for answer in answers] == ["exact", "nearest_shape", "default"]
    assert "no record near enough" in answers[2]["reason"]
    assert client.post("/v1/configs/lookup", json={**body, "strict": True}).status_code == 404
    assert client.post("/v1/configs/lookup", json={"lookups": []}).status_code == 422


def test_a_configuration_is_withdrawn_and_its_history_stays(client: TestClient, make_record: MakeRecord) -> None:
    first, second = make_record({"M": 64, "N": 64}, block=64), make_record({"M": 64, "N": 64}, block=32)
    put(client, first, second)
    assert look(client)["record"]["id"] == second.id
    etag = client.get("/v1/bundles/latest").headers["etag"]

    def withdraw(record: ConfigRecord, reason: str = "the fan was broken") -> Any:
        return client.request("DELETE", f"/v1/configs/{record.id}", json={"reason": reason})

    assert withdraw(second, "").status_code == 422, "a reason is needed"
    answer = withdraw(second).json()
    assert (answer["withdrawn"], answer["now"]["id"]) == (second.id, first.id)
    assert look(client)["record"]["id"] == first.id
    bundle = client.get("/v1/bundles/latest")
    assert bundle.headers["etag"] != etag and second.id not in bundle.text and first.id in bundle.text
    assert withdraw(first).json()["now"] is None
    assert look(client)["match"] == "default"
    assert first.id not in client.get("/v1/bundles/latest").text
    assert withdraw(first).status_code == 404
    assert client.get(f"/v1/configs/{first.id}").status_code == 404
    history = client.get(f"/v1/configs/{second.id}/history").json()["history"]
    assert [(entry["config_id"], entry["action"]) for entry in history] == [
        (first.id, "stored"),
        (second.id, "stored"),
        (second.id, "withdrawn"),
        (first.id, "stored"),
        (first.id, "withdrawn"),
    ]
    assert (history[2]["reason"], history[2]["who"]) == ("the fan was broken", "single user")
    assert history[1]["config"] == dict(second.config) and history[1]["time_ns"]["low"] == second.time_ns.low
    assert client.get("/v1/configs/nobody/history").status_code == 404


def test_a_pinned_configuration_stays(client: TestClient, make_record: MakeRecord) -> None:
    first, later = make_record({"M": 64, "N": 64}, block=64), make_record({"M": 64, "N": 64}, block=32)
    put(client, first)
    path = f"/v1/configs/{first.id}"
    assert client.post(f"{path}/pin", json={"reason": "release 3"}).json()["pinned"]
    put(client, later)
    assert look(client)["record"]["id"] == first.id
    assert client.get(path).json()["pinned"]
    assert not client.post(f"{path}/unpin", json={"reason": "released"}).json()["pinned"]
    put(client, later)
    assert look(client)["record"]["id"] == later.id
    actions = [entry["action"] for entry in client.get(f"{path}/history").json()["history"]]
    assert actions == ["stored", "pinned", "kept", "unpinned", "stored"]


@pytest.mark.parametrize("what", ["configs", "jobs"])
def test_listing_pages_through_everything(client: TestClient, make_record: MakeRecord, what: str) -> None:
    """Whatever the size of a page: all are full but the last, behind which there is none; and so say the links."""
    put(client, *(make_record({"M": 1 << i, "N": 1}) for i in range(6)))
    job = {"workload": "softmax", "shapes": [{"M": 8, "N": 8}]}
    assert all(client.post("/v1/jobs", json=job).status_code == 202 for _ in range(6))
    whole = client.get(f"/v1/{what}").json()[what]
    assert len({item["id"] for item in whole}) == 6
    for limit in range(1, 8):
        pages, following = [], f"/v1/{what}?limit={limit}"
        while following:
            page = client.get(following)
            assert page.status_code == 200
            pages.append(page.json()[what])
            following = page.links["next"]["url"] if page.links else ""
            cursor = page.json()["next"]
            assert f"cursor={cursor}" in following if cursor is not None else not following
        assert pages == [whole[at : at + limit] for at in range(0, 6, limit)], limit


# -- bundles


def test_what_another_process_stores_is_seen_soon(
    client: TestClient, settings: Settings, make_record: MakeRecord
) -> None:
    """A lookup trusts what it read for TRUST_SECONDS, unless this process writes."""
    put(client, make_record({"M": 64, "N": 64}, block=64))
    assert look(client, shape="M=96,N=64")["match"] == "nearest_shape"
    elsewhere = ServiceStore.open(settings.database_url)
    with elsewhere.write() as tx:
        put_record(tx, make_record({"M": 96, "N": 64}, block=96), None)
    elsewhere.close()
    time.sleep(TRUST_SECONDS + 0.1)
    assert look(client, shape="M=96,N=64")["match"] == "exact"


def test_lookups_are_counted_by_what_they_found(client: TestClient, make_record: MakeRecord) -> None:
    """The first from the store, which reads all of the group, the others from memory."""
    put(client, make_record({"M": 64, "N": 64}))
    for shape in ("M=65,N=64", "M=64,N=64", "M=64,N=64"):
        asked = {"kernel": HASH, "device": "cpu", "shape": shape, "dtype": "f32"}
        assert client.get("/v1/configs/lookup", params=asked).status_code == 200
    text = client.get("/metrics").text
    assert 'deuteron_lookups_total{match="exact"} 2\n' in text
    assert 'deuteron_lookups_total{match="nearest_shape"} 1\n' in text


def test_strict_refuses_from_memory_too(client: TestClient, make_record: MakeRecord) -> None:
    put(client, make_record({"M": 64, "N": 64}, block=64))
    assert look(client, shape="M=96,N=64")["match"] == "nearest_shape"
    parameters = {"kernel": HASH, "device": "cpu", "shape": "M=96,N=64", "strict": "true"}
    assert client.get("/v1/configs/lookup", params=parameters).status_code == 404


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"kernel": "k" * 201}, "kernel"),
        ({"device": "d" * 201}, "device"),
        ({"dtype": "f" * 17}, "dtype"),
        ({"shape": {"M" * 201: 64}}, "shape"),
        ({"shape": {f"M{n}": 64 for n in range(99)}}, "shape"),
    ],
)
def test_questions_about_what_cannot_be_stored_are_refused(
    client: TestClient, changes: dict[str, Any], where: str
) -> None:
    """They were remembered: megabytes each, for as long as the service ran."""
    question = {"kernel": "softmax", "device": "cpu", "shape": {"M": 64, "N": 64}, "dtype": "f32", **changes}
    shape = ",".join(f"{dim}={size}" for dim, size in question["shape"].items())
    batch = client.post("/v1/configs/lookup", json={"lookups": [question]})
    one = client.get("/v1/configs/lookup", params={**question, "shape": shape})
    for answer in (batch, one):
        assert answer.status_code == 422 and where in answer.json()["detail"], answer.text
    assert "lookups" in batch.json()["detail"]
