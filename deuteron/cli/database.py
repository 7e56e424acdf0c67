"""``deuteron db``: the schema of the service's database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from deuteron.compiler.extras import require_extras

from .errors import CommandError

app = typer.Typer(no_args_is_help=True, help="Look at and change the schema of the database.")

Url = Annotated[
    str | None,
    typer.Option("--url", help="Database address. Default: DEUTERON_DATABASE_URL, else SQLite."),
]


@app.command()
def upgrade(revision: Annotated[str, typer.Argument(help="Revision to go to.")] = "head", url: Url = None) -> None:
    """Bring the database to the newest revision, or to a named one; `deuteron serve` does so by itself.

    Example: `deuteron db upgrade`
    """
    _move(url, revision, up=True)


@app.command()
def downgrade(
    revision: Annotated[str, typer.Argument(help="Revision to go back to; `base` removes all tables.")],
    url: Url = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Take the database back to a revision. Columns that it lacks are lost with their contents.

    Example: `deuteron db downgrade 0001 --yes`
    """
    if not yes:
        typer.confirm(f"Take {shown(_address(url))} back to {revision}?", abort=True, err=True)
    _move(url, revision, up=False)


@app.command()
def current(url: Url = None) -> None:
    """Print the revision of the database and the newest that this version knows.

    Example: `deuteron db current`
    """
    from deuteron import migrations  # lazy: help starts without the service

    address = _address(url)
    with explained(address):
        found = migrations.current(address) or "base"
    newest = migrations.head()
    note = "newest" if found == newest else f"newest is {newest}: run `deuteron db upgrade`"
    typer.echo(f"{found} ({note})")


def _move(url: str | None, revision: str, *, up: bool) -> None:
    from deuteron import migrations  # lazy: help starts without the service

    address = _address(url)
    with explained(address):
        (migrations.upgrade if up else migrations.downgrade)(address, revision)
        typer.echo(f"{shown(address)} is at {migrations.current(address) or 'base'}")


def _address(url: str | None) -> str:
    import dataclasses

    require_extras("server", by="deuteron db")
    from deuteron.server import Settings  # lazy: help starts without the service

    settings = Settings.from_environment()
    if url:
        settings = dataclasses.replace(settings, database_url=url)
    elif settings.is_sqlite:
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    return settings.database_url


def shown(address: str) -> str:
    """The address without its password."""
    from sqlalchemy import make_url

    return make_url(address).render_as_string(hide_password=True)


@contextmanager
def explained(address: str) -> Iterator[None]:
    """Turn what Alembic and the database driver raise into messages."""
    from alembic.util import CommandError as AlembicError
    from sqlalchemy.exc import DBAPIError

    try:
        yield
    except AlembicError as error:
        raise CommandError(
            f"{shown(address)}: {error}",
            hint="`deuteron db current` prints the newest revision",
        ) from None
    except DBAPIError as error:
        raise CommandError(
            f"{shown(address)}: {error.orig}", hint="does the database exist, and does it answer?"
        ) from None
