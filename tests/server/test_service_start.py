"""How a service begins: for a single user or with tokens, at which address, and when it does not begin at all."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sent_bodies import JOB

from deuteron import migrations
from deuteron.compiler.errors import DeuteronError
from deuteron.server import ServiceStore, Settings, SettingsError, serve
from deuteron.server.listen import bind, require_tokens_exist

OpenClient = Callable[..., TestClient]


def test_single_user_mode_says_so(
    settings: Settings, open_client: OpenClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "deuteron.server"):
        client = open_client(settings)
    assert "single-user mode" in caplog.text
    assert "single user" in client.get("/healthz").json()["auth"]


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}])
def test_single_user_mode_ignores_requests_made_by_other_sites(client: TestClient, headers: dict[str, str]) -> None:
    response = client.post("/v1/jobs", json=JOB, headers=headers)
    assert response.status_code == 403
    assert client.get("/v1/jobs").json()["jobs"] == []


def test_an_open_address_needs_tokens(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="anyone who reaches this address"):
        Settings(home=tmp_path, host="0.0.0.0", auth="off")
    settings = Settings(home=tmp_path, host="0.0.0.0")
    assert settings.requires_tokens
    migrations.upgrade(settings.database_url)
    store = ServiceStore.open(settings.database_url)
    with pytest.raises(SettingsError, match="no administrator's token yet") as caught:
        require_tokens_exist(settings, store)
    assert "deuteron token create" in str(caught.value.hint)
    with store.write() as tx:
        tx.tokens.create("reader", ["read", "submit", "worker"])
        tx.tokens.create("past", ["admin"], expires_at=datetime.now(UTC) - timedelta(seconds=1))
        revoked, _ = tx.tokens.create("gone", ["admin"])
        tx.tokens.revoke(revoked.id)
    with pytest.raises(SettingsError, match="no administrator's token yet"):
        require_tokens_exist(settings, store)
    with store.write() as tx:
        tx.tokens.create("root", ["admin"], expires_at=datetime.now(UTC) + timedelta(hours=1))
    require_tokens_exist(settings, store)
    store.close()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, None),
        ({"auth": "off", "proxies": "10.0.0.1"}, None),
        ({"auth": "tokens"}, "DEUTERON_AUTH asks for tokens"),
        ({"host": "0.0.0.0"}, "0.0.0.0 is reachable from other machines"),
        ({"proxies": "10.0.0.1"}, "DEUTERON_PROXIES lets others in"),
        ({"public_url": "https://configs.example.org"}, "DEUTERON_PUBLIC_URL names configs.example.org"),
        ({"public_url": "http://localhost:8642"}, None),
    ],
)
def test_a_service_says_why_it_wants_tokens(tmp_path: Path, given: dict[str, Any], why: str | None) -> None:
    settings = Settings(home=tmp_path, **given)
    assert settings.why_tokens == why and settings.requires_tokens == (why is not None)
    if why is None:
        return
    migrations.upgrade(settings.database_url)
    store = ServiceStore.open(settings.database_url)
    with pytest.raises(SettingsError, match=f"{re.escape(why)}, and there is no administrator's token yet"):
        require_tokens_exist(settings, store)
    store.close()


def test_answers_do_not_wait_for_acknowledgements(tmp_path: Path) -> None:
    """asyncio sets TCP_NODELAY on accepted sockets only if the listening one names its protocol."""
    with bind(Settings(home=tmp_path, port=0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_a_service_that_could_not_measure_or_sign_does_not_say_that_it_listens(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for changed in ({"runner": "nosuch:fn", "scheduler": "embedded"}, {"signing_key": "/nowhere/key.pem"}):
        with pytest.raises(DeuteronError, match=r"nosuch|key\.pem"):
            serve(replace(settings, port=0, **changed))
    assert "listening" not in caplog.text


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    first = bind(Settings(home=tmp_path, port=0))
    first.listen()
    port = first.getsockname()[1]
    with pytest.raises(SettingsError, match=f"cannot listen on 127.0.0.1:{port}"):
        bind(Settings(home=tmp_path, port=port))
    first.close()
