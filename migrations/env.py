"""Alembic's entry point. The address comes from the caller, or from our settings on the command line."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from deuteron.server.database import make_engine
from deuteron.server.models import Base
from deuteron.server.settings import Settings


def _database_url() -> str:
    url = context.config.attributes.get("database_url")
    return str(url) if url else Settings.from_environment().database_url


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        # SQLite cannot alter a table in place; batch mode copies it.
        render_as_batch=connection.dialect.name == "sqlite",
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def _migrate() -> None:
    engine = make_engine(_database_url())
    try:
        # A fleet may start several servers at once: one of them migrates while the others wait and then find nothing
        # to do. One transaction spans all of it, from reading the revision on: Alembic's own would end with each
        # migration on SQLite. There the write lock is taken where it begins.
        with engine.execution_options(writing=True).connect() as connection, connection.begin():
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(20826)")
            _run(connection)
    finally:
        engine.dispose()


_migrate()
