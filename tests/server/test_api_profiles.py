"""Profiles of jobs over HTTP: who uploads one, what is kept of it, and how it is fetched."""

from __future__ import annotations

import os
import uuid
from typing import Any

import pytest
from fastapi.testclient import TestClient
from played_worker import claim, deliver, submit

from deuteron.server.store.jobs import Jobs


def upload(client: TestClient, job_id: str, content: bytes, claim_id: str = "ticket.run") -> int:
    """The status of an upload of a run."""
    address = f"/v1/worker/jobs/{job_id}/profile?claim_id={claim_id}"
    return client.put(address, content=content).status_code


def test_only_the_run_that_has_a_job_uploads_its_profile(client: TestClient, tune_events: Any) -> None:
    """What it uploaded before goes away, unless another job has the same."""
    folder = client.app.state.context.settings.directory("profiles")  # type: ignore[attr-defined]
    job_id, other = submit(client)["id"], submit(client)["id"]
    assert client.put(f"/v1/worker/jobs/{job_id}/profile", content=b"[]").status_code == 422
    assert upload(client, job_id, b"[0]") == 409, "nobody has claimed it"
    claim(client, job_id)
    claim(client, other, "other.run")
    assert upload(client, job_id, b"[0]", "other.run") == 409
    assert list(folder.iterdir()) == []
    assert [upload(client, job_id, b"[1]"), upload(client, other, b"[1]", "other.run")] == [204, 204]
    for content in (b"[2]", b"[2]", b"[3]"):
        assert upload(client, job_id, content) == 204
        assert client.get(f"/v1/jobs/{job_id}/profile").content == content
    assert sorted(path.read_bytes() for path in folder.iterdir()) == [b"[1]", b"[3]"]
    deliver(client, job_id, tune_events(trials=1))
    assert upload(client, job_id, b"[4]") == 409, "the job has ended"
    assert client.get(f"/v1/jobs/{job_id}/profile").content == b"[3]"
    assert client.get(f"/v1/jobs/{other}/profile").content == b"[1]"


def test_profile_upload_and_download(client: TestClient) -> None:
    job_id = submit(client)["id"]
    missing = client.get(f"/v1/jobs/{job_id}/profile")
    assert missing.status_code == 404
    assert "has no profile yet" in missing.json()["detail"]
    content = b'[{"frame": {"name": "ROOT"}}]' * 1000
    claim(client, job_id)
    assert upload(client, job_id, content) == 204
    got = client.get(f"/v1/jobs/{job_id}/profile")
    assert got.content == content
    assert ".hatchet" in got.headers["content-disposition"]
    etag = got.headers["etag"]
    assert got.headers["cache-control"] == "private, no-cache"
    for named in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        assert client.get(f"/v1/jobs/{job_id}/profile", headers={"If-None-Match": named}).status_code == 304, named
    for asked, length in (({}, 5), ({"If-Range": etag}, 5), ({"If-Range": '"other"'}, len(content))):
        part = client.get(f"/v1/jobs/{job_id}/profile", headers={"Range": "bytes=0-4", **asked})
        assert len(part.content) == length
    for at in ({}, {"If-Range": etag}, {"If-Range": got.headers["last-modified"]}):
        behind = client.get(f"/v1/jobs/{job_id}/profile", headers={"Range": f"bytes={len(content)}-", **at})
        assert (behind.status_code, behind.headers["content-type"]) == (416, "application/problem+json")
        assert behind.headers["content-range"] == f"bytes */{len(content)}"


def test_an_ended_job_without_a_profile_is_not_said_to_get_one(client: TestClient, tune_events: Any) -> None:
    job_id = submit(client)["id"]
    claim(client, job_id)
    deliver(client, job_id, tune_events(trials=1))
    missing = client.get(f"/v1/jobs/{job_id}/profile")
    assert missing.status_code == 404
    assert missing.json()["detail"] == f"job {job_id} has no profile: it is succeeded"


def test_no_part_of_an_empty_profile(client: TestClient) -> None:
    job_id = submit(client)["id"]
    claim(client, job_id)
    assert upload(client, job_id, b"") == 204
    for part in ("bytes=0-", "bytes=-5"):
        answer = client.get(f"/v1/jobs/{job_id}/profile", headers={"Range": part})
        assert (answer.status_code, answer.headers["content-type"]) == (416, "application/problem+json")


def test_a_profile_is_on_disk_before_a_job_has_it(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file and its name; and nothing is kept for a job that is not there."""
    folder = client.app.state.context.settings.directory("profiles")  # type: ignore[attr-defined]
    assert upload(client, str(uuid.uuid4()), b"[]") == 404
    assert list(folder.iterdir()) == []
    order: list[str] = []
    real_sync, real_attach = os.fsync, Jobs.attach_profile

    def fsync(handle: int) -> None:
        order.append("folder" if os.fstat(handle).st_ino == folder.stat().st_ino else "file")
        real_sync(handle)

    def attach(jobs: Jobs, job_id: str, digest: str) -> None:
        order.append("attached")
        real_attach(jobs, job_id, digest)

    job_id = submit(client)["id"]
    claim(client, job_id)
    monkeypatch.setattr("os.fsync", fsync)
    monkeypatch.setattr(Jobs, "attach_profile", attach)
    assert upload(client, job_id, b"[]") == 204
    assert order == ["file", "folder", "attached"]
