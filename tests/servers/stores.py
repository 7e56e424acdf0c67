"""The store behind a service that is tested, and records in it."""

from __future__ import annotations

from fastapi.testclient import TestClient

from deuteron.server.configs import put_record
from deuteron.server.context import ServiceContext
from deuteron.tuner import ConfigRecord


def context_of(client: TestClient) -> ServiceContext:
    context: ServiceContext = client.app.state.context  # type: ignore[attr-defined]
    return context


def put(client: TestClient, *records: ConfigRecord) -> None:
    with context_of(client).store.write() as tx:
        for record in records:
            put_record(tx, record, None)
