"""Bundles over HTTP."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from fastapi.testclient import TestClient
from stores import put

from deuteron.server import Settings, bundles
from deuteron.server.context import ServiceContext
from deuteron.tuner import ConfigRecord, DeviceFingerprint, read_bundle

HASH = "a" * 64
PLAIN = {"Accept-Encoding": "identity"}
H200 = DeviceFingerprint("cuda", "NVIDIA H200", "10de:2335", 132, 141 << 30, (9, 0), None, 700.0)

MakeRecord = Callable[..., ConfigRecord]


def test_bundle_etag_is_its_sha256(client: TestClient, make_record: MakeRecord, tmp_path: Path) -> None:
    records = [make_record({"M": 1 << i, "N": 64}) for i in range(6)]
    put(client, *records)
    response = client.get("/v1/bundles/latest", params={"kernel": HASH, "device": "cpu"}, headers=PLAIN)
    assert response.status_code == 200
    sha256 = hashlib.sha256(response.content).hexdigest()
    assert response.headers["etag"] == f'"{sha256}"'
    assert response.headers["content-location"] == f"/v1/bundles/{sha256}"
    path = tmp_path / "b.bundle"
    path.write_bytes(response.content)
    bundle = read_bundle(path)
    assert (bundle.manifest.count, bundle.manifest.kernel_hash) == (6, HASH)
    assert {record.id for record in bundle.records()} == {record.id for record in records}

    immutable = client.get(f"/v1/bundles/{sha256}")
    assert immutable.content == response.content
    assert "immutable" in immutable.headers["cache-control"]
    for address in ("/v1/bundles/latest", f"/v1/bundles/{sha256}"):
        unchanged = client.get(
            address,
            params={"kernel": HASH, "device": "cpu"} if "latest" in address else None,
            headers={**PLAIN, "If-None-Match": response.headers["etag"]},
        )
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        assert unchanged.headers["etag"] == response.headers["etag"]


def test_bundle_changes_only_with_its_own_records(
    client: TestClient, make_record: MakeRecord, settings: Settings, open_client: Callable[..., Any]
) -> None:
    put(client, make_record({"M": 64, "N": 64}))
    parameters = {"kernel": HASH}
    first = client.get("/v1/bundles/latest", params=parameters).headers["etag"]
    put(client, make_record({"M": 64, "N": 64}, kernel_hash="b" * 64))
    assert client.get("/v1/bundles/latest", params=parameters).headers["etag"] == first
    restarted = open_client(settings)
    assert restarted.get("/v1/bundles/latest", params=parameters).headers["etag"] == first
    put(client, make_record({"M": 65, "N": 64}))
    assert client.get("/v1/bundles/latest", params=parameters).headers["etag"] != first


def test_servers_of_one_database_build_the_same_bundles(
    client: TestClient, make_record: MakeRecord, settings: Settings, open_client: Callable[..., Any]
) -> None:
    put(client, *(make_record({"M": 1 << i, "N": 64}) for i in range(3)))
    client.get("/v1/bundles/latest")
    keys = settings.keys / "own.pem"
    other = replace(settings, home=settings.home / "other", database_url=settings.database_url, signing_key=str(keys))
    answers = [service.get("/v1/bundles/latest", headers=PLAIN) for service in (client, open_client(other))]
    assert answers[0].content == answers[1].content and '"signature"' in answers[0].text
    newest = max(json.loads(line)["created_at"] for line in answers[0].text.splitlines()[1:])
    assert datetime.fromisoformat(json.loads(answers[0].text.splitlines()[0])["created_at"]) == datetime.fromisoformat(
        newest
    )


def test_bundles_that_are_used_stay(
    client: TestClient, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deuteron.server.bundles._KEPT", 2)
    monkeypatch.setattr("deuteron.server.bundles._KEPT_BYTES", 0)
    hashes = [letter * 64 for letter in "abcd"]
    put(client, *(make_record({"M": 64, "N": 64}, kernel_hash=kernel_hash) for kernel_hash in hashes))

    def latest(kernel_hash: str) -> httpx.Response:
        return client.get("/v1/bundles/latest", params={"kernel": kernel_hash})

    first = {kernel_hash: latest(kernel_hash).headers for kernel_hash in hashes[:2]}
    assert latest(hashes[0]).status_code == 200
    latest(hashes[2])
    places = [first[kernel_hash]["content-location"] for kernel_hash in hashes[:2]]
    assert [client.get(place).status_code for place in places] == [200, 404], "the one that was asked for last stays"
    again = client.get(
        "/v1/bundles/latest", params={"kernel": hashes[1]}, headers={"If-None-Match": first[hashes[1]]["etag"]}
    )
    assert again.status_code == 304, "built anew it is what it was"
    monkeypatch.setattr("deuteron.server.bundles._KEPT_BYTES", 1 << 20)
    latest(hashes[3])
    assert client.get(places[1]).status_code == 200, "small ones take no place away"


def test_kernels_that_nobody_knows_take_no_bundle_away(
    client: TestClient, make_record: MakeRecord, settings: Settings
) -> None:
    record = make_record({"M": 64, "N": 64})
    put(client, record)
    address = client.get("/v1/bundles/latest", params={"kernel": HASH}).headers["content-location"]
    before = sorted(settings.directory("bundles").iterdir())
    for number in range(3):
        answer = client.get("/v1/bundles/latest", params={"kernel": f"{number:064x}"})
        assert (answer.status_code, "nothing was ever stored" in answer.json()["detail"]) == (404, True)
    assert sorted(settings.directory("bundles").iterdir()) == before
    assert client.get(address).status_code == 200
    # Who has the record of a kernel must be told that it was withdrawn.
    client.request("DELETE", f"/v1/configs/{record.id}", json={"reason": "wrong"}).raise_for_status()
    empty = client.get("/v1/bundles/latest", params={"kernel": HASH}, headers=PLAIN)
    assert empty.status_code == 200 and json.loads(empty.content)["count"] == 0


def test_bundles_are_sent_compressed_to_who_takes_them(client: TestClient, make_record: MakeRecord) -> None:
    put(client, *(make_record({"M": 1 << i, "N": 1}) for i in range(20)))
    plain = client.get("/v1/bundles/latest", headers={"Accept-Encoding": "identity"})
    packed = client.get("/v1/bundles/latest", headers={"Accept-Encoding": "br, gzip;q=0.8"})
    assert "content-encoding" not in plain.headers and packed.headers["content-encoding"] == "gzip"
    assert packed.content == plain.content, "httpx unpacks it"
    assert int(packed.headers["content-length"]) < len(plain.content) / 3
    etag = plain.headers["etag"]
    assert packed.headers["etag"] == etag[:-1] + '-gzip"', "another representation has another strong ETag"
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    for tag in (etag, packed.headers["etag"], f"W/{etag}"):
        again = client.get("/v1/bundles/latest", headers={"If-None-Match": tag, "Accept-Encoding": "gzip"})
        assert again.status_code == 304
    for weight in ("0.0", "0.000"):
        plain = client.get("/v1/bundles/latest", headers={"Accept-Encoding": f"gzip; q={weight}, identity"})
        assert "content-encoding" not in plain.headers
    behind = client.get("/v1/bundles/latest/pieces", headers={"Range": "bytes=99999999-"})
    assert (behind.status_code, behind.headers["content-type"]) == (416, "application/problem+json")
    refused = client.get("/v1/bundles/latest", headers={"Accept-Encoding": "gzip;q=0"})
    assert "content-encoding" not in refused.headers
    part = client.get("/v1/bundles/latest", headers={"Accept-Encoding": "gzip", "Range": "bytes=0-9"})
    assert (part.status_code, part.content) == (206, plain.content[:10])


def test_health_does_not_wait_for_bundles(
    client: TestClient, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty clients wait for a build: as many as there are threads, and more."""
    put(client, make_record({"M": 64, "N": 64}))
    context: ServiceContext = client.app.state.context  # type: ignore[attr-defined]
    build, go_on, builds = context.bundles._build, threading.Event(), []

    def slow_build(*selection: Any) -> Any:
        builds.append(selection)
        assert go_on.wait(30)
        return build(*selection)

    monkeypatch.setattr(context.bundles, "_build", slow_build)
    with ThreadPoolExecutor(60) as pool:
        answers = [pool.submit(client.get, "/v1/bundles/latest") for _ in range(60)]
        time.sleep(0.5)
        started = time.monotonic()
        assert client.get("/healthz").status_code == 200
        assert client.get("/v1/jobs").status_code == 200, "nor do others"
        assert time.monotonic() - started < 5
        go_on.set()
        assert {answer.result(30).status_code for answer in answers} == {200}
    assert len(builds) == 1


def test_bundle_ranges(client: TestClient, make_record: MakeRecord) -> None:
    put(client, make_record({"M": 64, "N": 64}))
    whole = client.get("/v1/bundles/latest", headers=PLAIN)
    etag = whole.headers["etag"]
    part = client.get("/v1/bundles/latest", headers={"Range": "bytes=100-", "If-Range": etag})
    assert (part.status_code, part.content) == (206, whole.content[100:])
    other = client.get("/v1/bundles/latest", headers={"Range": "bytes=100-", "If-Range": '"x"'})
    assert (other.status_code, other.content) == (200, whole.content)
    behind = client.get("/v1/bundles/latest", headers={"Range": f"bytes={len(whole.content)}-"})
    assert behind.status_code == 416
    assert behind.headers["content-range"] == f"bytes */{len(whole.content)}"
    assert behind.headers["content-type"] == "application/problem+json"
    shrunk = client.get("/v1/bundles/latest", headers={"Range": f"bytes={len(whole.content)}-", "If-Range": '"x"'})
    assert (shrunk.status_code, shrunk.content) == (200, whole.content), "the range is of the file that it was"


@pytest.mark.parametrize("path", ["/v1/bundles/latest", "/v1/bundles/latest/pieces"])
def test_parts_under_if_match_are_of_one_file(client: TestClient, make_record: MakeRecord, path: str) -> None:
    put(client, make_record({"M": 64, "N": 64}))
    etag = client.get(path, headers=PLAIN).headers["etag"]
    part = {**PLAIN, "Range": "bytes=0-9"}
    for named in (etag, "*", f'"other", {etag}'):
        assert client.get(path, headers={**part, "If-Match": named}).status_code == 206, named
    # Compared strongly, and before anything else is looked at.
    for headers in (part, {}, {"If-None-Match": etag}, {"Range": "bytes=999999-"}):
        for named in ('"0000"', f"W/{etag}", f'{etag[:-1]}0"'):
            answer = client.get(path, headers={**PLAIN, **headers, "If-Match": named})
            assert (answer.status_code, answer.json()["type"]) == (412, "urn:deuteron:problem:precondition-failed")
    put(client, make_record({"M": 96, "N": 64}))
    assert client.get(path, headers={**part, "If-Match": etag}).status_code == 412


def test_the_packed_form_is_the_same_file_where_it_is_asked_for_whole(
    client: TestClient, make_record: MakeRecord
) -> None:
    put(client, make_record({"M": 64, "N": 64}))
    plain = client.get("/v1/bundles/latest", headers=PLAIN).headers["etag"]
    packed = f'{plain[:-1]}-gzip"'
    gzip = {"Accept-Encoding": "gzip"}
    assert client.get("/v1/bundles/latest", headers=gzip).headers["etag"] == packed
    for etag in (plain, packed):
        assert client.get("/v1/bundles/latest", headers={**gzip, "If-Match": etag}).status_code == 200
    mixed = client.get("/v1/bundles/latest", headers={**gzip, "If-Match": packed, "Range": "bytes=5-"})
    assert mixed.status_code == 412


@pytest.mark.parametrize(
    "value",
    [
        "9" * 5000 + "-",
        "5-2",
        "a-b",
        "",
        "-",
        "-0",
        "-" + "0" * 5000 + "1",
        "0-0,2-3",
        "\u0663-",
        "1-" + "9" * 5000,
        "-1-2",
        "0 - 5",
    ],
)
def test_ranges_that_are_none_are_ignored(client: TestClient, value: str) -> None:
    headers = {**PLAIN, "Range": f"bytes={value}".encode()}
    answer = client.get("/v1/bundles/latest", headers=headers)  # type: ignore[arg-type]
    whole = client.get("/v1/bundles/latest", headers=PLAIN)
    assert (answer.status_code, answer.content) == (200, whole.content)


def test_files_of_bundles_survive_a_power_cut(
    client: TestClient, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compressed form could be empty beside a bundle that is whole, and would have stayed so."""
    synced: set[int] = set()
    real = os.fsync

    def fsync(handle: int) -> None:
        synced.add(os.fstat(handle).st_ino)
        real(handle)

    monkeypatch.setattr("os.fsync", fsync)
    put(client, make_record({"M": 64, "N": 64}))
    assert client.get("/v1/bundles/latest").status_code == 200
    folder = client.app.state.context.settings.directory("bundles")  # type: ignore[attr-defined]
    files = [path for path in folder.iterdir() if path.suffix in (".bundle", ".gz", ".pieces")]
    assert len(files) == 3 and {path.stat().st_ino for path in files} <= synced


def test_builds_leave_nothing_but_bundles(
    client: TestClient, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one whose bytes were there before, too, and of one that fails: parts are as large as bundles."""

    def get() -> str:
        answer = client.get("/v1/bundles/latest")
        assert answer.status_code == 200
        return str(answer.headers["etag"])

    put(client, make_record({"M": 64, "N": 64}))
    first = get()
    passing = make_record({"M": 128, "N": 64})
    put(client, passing)
    with client.app.state.context.store.write() as tx:  # type: ignore[attr-defined]
        tx.configs.withdraw(passing.id, who="me", reason="wrong")
    assert get() == first
    put(client, make_record({"M": 256, "N": 64}))
    with monkeypatch.context() as broken:
        broken.setattr(bundles, "_compress", lambda source, target: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            client.get("/v1/bundles/latest")
    folder = client.app.state.context.settings.directory("bundles")  # type: ignore[attr-defined]
    assert {path.suffix for path in folder.iterdir()} == {".bundle", ".gz", ".pieces"}
    assert get() != first


def test_unknown_bundle_and_device(client: TestClient) -> None:
    assert client.get(f"/v1/bundles/{'0' * 64}").status_code == 404
    assert client.get("/v1/bundles/xyz").status_code == 422
    response = client.get("/v1/bundles/latest", params={"device": "B300"})
    assert response.status_code == 404
    assert "B300" in response.json()["detail"]


def test_bundle_order_is_the_tuners_on_every_database(
    database_url: str,
    tmp_path: Path,
    open_client: Callable[[Settings], TestClient],
    make_record: MakeRecord,
) -> None:
    """Keys with characters that locales sort differently from their bytes."""
    service = open_client(Settings(home=tmp_path / "h", scheduler="none", database_url=database_url))
    names = ["NVIDIA L4", "NVIDIA-L40S", "NVIDIA A10", "nvidia a100-pcie"]
    put(
        service,
        *(
            make_record({"M": m, "n": 1}, dtype, device=msgspec.structs.replace(H200, name=name))
            for name in names
            for dtype in ("f32", "bf16", "f8e4m3")
            for m in (2, 10, 100)
        ),
    )
    path = tmp_path / "all.bundle"
    path.write_bytes(service.get("/v1/bundles/latest").content)
    assert read_bundle(path).manifest.count == 36
