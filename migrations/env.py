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
        # A fleet may start several servers at once: on SQLite the write lock, taken when the transaction
        # begins, lets one of them migrate while the others wait and then find nothing to do.
        with engine.execution_options(writing=True).connect() as connection:
            if connection.dialect.name == "postgresql":
                with connection.begin():
                    connection.exec_driver_sql("SELECT pg_advisory_lock(20826)")
            _run(connection)
            if connection.dialect.name == "postgresql":
                with connection.begin():
                    connection.exec_driver_sql("SELECT pg_advisory_unlock(20826)")
    finally:
        engine.dispose()


_migrate()
