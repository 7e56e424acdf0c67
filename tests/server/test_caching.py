"""What caches between a service and its clients are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from deuteron.server import Settings
from deuteron.server.caching import cache_control
from deuteron.server.configs import put_record

IMMUTABLE = "max-age=31536000, immutable"
LOOKUP = "/v1/configs/lookup?kernel={hash}&device=cpu&shape=M=64,N=64"
#: Addresses with what their answers say beside who may keep them.
SAID = {
    "/v1/bundles/latest": "no-cache",
    "/v1/bundles/latest?kernel=nobody": "no-cache",
    "/v1/bundles/latest/pieces": "no-cache",
    "/v1/bundles/{sha256}": IMMUTABLE,
    "/v1/bundles/{sha256}/pieces": IMMUTABLE,
    f"/v1/bundles/{'0' * 64}": "no-cache",
    "/v1/jobs": "no-cache",
    "/v1/jobs/nobody": "no-cache",
    "/v1/configs": "no-cache",
    LOOKUP: "no-cache",
    "/v1/nothing": "no-cache",
}


@pytest.mark.parametrize("auth", ["tokens", "off"])
def test_answers_to_tokens_are_private_and_others_may_be_passed_on(
    settings: Settings, open_client: Callable[..., TestClient], make_record: Callable[..., Any], auth: str
) -> None:
    """Bundles of services without tokens were private, and jobs of those with tokens were not."""
    client = open_client(replace(settings, auth=auth))
    with client.app.state.context.store.write() as tx:  # type: ignore[attr-defined]
        token = tx.tokens.create("test", ("admin",), expires_at=None)[1]
        record = make_record({"M": 64, "N": 64})
        put_record(tx, record, None)
    client.headers["Authorization"] = f"Bearer {token}"
    latest = client.get("/v1/bundles/latest")
    sha256 = latest.headers["content-location"].rpartition("/")[2]
    who = {"tokens": "private", "off": "public"}[auth]
    for address, lasting in SAID.items():
        for method in ("GET", "HEAD"):
            for known in ("", latest.headers["etag"]):
                path = address.format(sha256=sha256, hash=record.kernel_hash)
                said = client.request(method, path, headers={"If-None-Match": known}).headers["cache-control"]
                assert said == f"{who}, {lasting}", (path, method, known)
    made = client.post("/v1/tokens", json={"name": "new", "scopes": ["read"]})
    assert made.status_code == 201 and made.headers["cache-control"] == "no-store"
    del client.headers["Authorization"]
    refused = client.get("/v1/jobs")
    assert (refused.status_code, refused.headers["cache-control"]) == (
        (401, "private, no-cache") if auth == "tokens" else (200, "public, no-cache")
    )


@pytest.mark.parametrize("said", ["no-store", "private, no-cache", "max-age=5,public"])
def test_who_says_who_may_keep_it_has_the_last_word(said: str) -> None:
    assert [cache_control(said, with_tokens=with_tokens) for with_tokens in (True, False)] == [said] * 2
