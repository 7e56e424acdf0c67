"""``deuteron db``: the schema of the service's database, and backups of what the service keeps."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deuteron import __version__
from deuteron.compiler.extras import require_extras
from deuteron.compiler.printable import printable_line

from .errors import CommandError, remedy_of

if TYPE_CHECKING:
    from sqlalchemy.exc import DBAPIError

    from deuteron.server import Settings
    from deuteron.server.backup import Backup

app = typer.Typer(no_args_is_help=True, help="The service's database: its schema, backups.")

#: What a backup is summed up by.
_COUNTED = {"jobs": "jobs", "trials": "trials", "configs": "configurations"}

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
    """Take the database back to a revision. Columns that it lacks are lost with their contents. No server may run.

    Example: `deuteron db downgrade 0001 --yes`
    """
    revision, address = _revision(revision), _settings(url, there=True).database_url
    if not yes:
        typer.confirm(f"Take {shown(address)} back to {revision}?", abort=True, err=True)
    with explained(address), _unserved(address):
        _move(url, revision, up=False)


@app.command()
def current(url: Url = None) -> None:
    """Print the revision of the database and the newest that this version knows.

    Example: `deuteron db current`
    """
    from deuteron import migrations  # lazy: help starts without the service

    address = _settings(url, there=True).database_url
    with explained(address):
        found = migrations.current(address) or "base"
    newest = migrations.head()
    if found == newest:
        note = "newest"
    elif migrations.is_newer(found):
        note = f"of a newer version of deuteron: {__version__} knows up to {newest}"
    else:
        note = f"newest is {newest}: run `deuteron db upgrade`"
    typer.echo(f"{found} ({note})")


@app.command()
def backup(file: Annotated[Path, typer.Argument(help="Where to write it. Must not exist.")], url: Url = None) -> None:
    """Write jobs, trials, configurations, tokens, profiles and keys to one file. The service may go on running.

    Example: `deuteron db backup deuteron-backup.zip`
    """
    from deuteron.server.backup import back_up  # lazy: help starts without the service

    settings = _settings(url, there=True)
    with explained(settings.database_url):
        made = back_up(settings, file)
    typer.echo(f"{file}: {_contents(made)}, {file.stat().st_size / 1e6:.1f} MB")
    if made.missing_profiles:
        raise CommandError(
            f"{made.missing_profiles} profiles that jobs name are not in {settings.home}: the backup lacks them, and "
            "what else is kept where they are",
            hint="run it with the DEUTERON_HOME of the servers",
        )


@app.command()
def restore(
    file: Annotated[Path, typer.Argument(help="What `deuteron db backup` wrote.", exists=True, dir_okay=False)],
    url: Url = None,
) -> None:
    """Put a backup into an empty database, of either kind, and an empty data directory.

    Example: `deuteron db restore deuteron-backup.zip --url postgresql://user@host/deuteron`
    """
    from deuteron.server.backup import restore as put_back  # lazy: help starts without the service

    settings = _settings(url)
    with explained(settings.database_url):
        made = put_back(settings, file)
    typer.echo(f"{shown(settings.database_url)}: {_contents(made)}, written at {printable_line(made.made_at)}")


def _contents(made: Backup) -> str:
    counted = [(made.rows.get(table, 0), word) for table, word in _COUNTED.items()]
    return ", ".join(f"{count} {word}" for count, word in [*counted, (made.files, "files")])


@contextmanager
def _unserved(address: str) -> Iterator[None]:
    """No server that dispatches has the database, or begins to in the block."""
    from deuteron.server.database import make_engine  # lazy: help starts without the service
    from deuteron.server.dispatch.leadership import dispatch_lock  # lazy: help starts without the service

    engine = make_engine(address)
    lock = dispatch_lock(engine)
    try:
        if not lock.acquire():
            raise CommandError(f"a server runs on {shown(address)}", hint="stop it first")
        yield
    finally:
        lock.release()
        engine.dispose()


def _move(url: str | None, revision: str, *, up: bool) -> None:
    from deuteron import migrations  # lazy: help starts without the service

    address, revision = _address(url), _revision(revision)
    with explained(address):
        (migrations.upgrade if up else migrations.downgrade)(address, revision)
        found = migrations.current(address) or "base"
    typer.echo(f"{shown(address)} is at {found}")  # out of there: where it has no room, that is not the database's


def _address(url: str | None) -> str:
    return _settings(url).database_url


def _settings(url: str | None, *, there: bool = False) -> Settings:
    """``there``: who asks makes no database. Raises CommandError where there is none, or it cannot be made."""
    require_extras("server", by="deuteron db")
    from deuteron.server import Settings  # lazy: help starts without the service

    settings = Settings.from_environment()
    if url:
        settings = dataclasses.replace(settings, database_url=url)
    if there:
        _refuse_missing(settings.database_url)
    elif not url:
        make_home(settings)
    return settings


def _refuse_missing(address: str) -> None:
    if is_missing(address):
        raise CommandError(
            f"there is no database {shown(address)}", hint="--url names another; `deuteron db upgrade` makes one"
        )


def is_missing(address: str) -> bool:
    """Whether there is no file of SQLite: opening it would make an empty one."""
    from deuteron.server.database import parse_url  # lazy: help starts without the service

    with explained(address):
        parsed = parse_url(address)
        return parsed.get_backend_name() == "sqlite" and not Path(str(parsed.database)).exists()


def make_home(settings: Settings) -> None:
    """The data directory, where the database may be in it. Raises CommandError where it cannot be made."""
    if not settings.is_sqlite:
        return
    try:
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise CommandError(
            f"cannot write {settings.home}: {error.strerror}", hint="DEUTERON_HOME names another"
        ) from None


def _revision(name: str) -> str:
    """The one revision that has this name, or whose name begins so. Alembic's own way of finding it fails by an
    assertion at names such as '' and '@'. Raises CommandError for others."""
    from deuteron import migrations  # lazy: help starts without the service

    known = migrations.revisions()
    if name in ("base", "head", *known):
        return name
    found = [revision for revision in known if name and revision.startswith(name)]
    if len(found) != 1:
        raise CommandError(
            f"{name!r} is {'no revision' if not found else f'any of {len(found)} revisions'}",
            hint=f"base, head or one of {', '.join(known)}; `deuteron db current` prints the newest",
        )
    return found[0]


def shown(address: str) -> str:
    """The address without its password."""
    from sqlalchemy import make_url

    return make_url(address).render_as_string(hide_password=True)


@contextmanager
def explained(address: str) -> Iterator[None]:
    """Turn what Alembic and the database driver raise into messages."""
    from alembic.util import CommandError as AlembicError
    from sqlalchemy.exc import DBAPIError

    from deuteron import migrations  # lazy: help starts without the service

    try:
        yield
    except AlembicError as error:
        found = migrations.current(address)
        if migrations.is_newer(found):
            raise CommandError(
                f"{shown(address)} is of a newer version of deuteron: it is at revision {found}, and {__version__} "
                f"knows up to {migrations.head()}",
                hint=f"install that version again; its `deuteron db downgrade {migrations.head()}` takes the database "
                "back to this one",
            ) from None
        raise CommandError(
            f"{shown(address)}: {error}",
            hint="`deuteron db current` prints the newest revision",
        ) from None
    except OSError as error:
        if remedy_of(error) is not None:
            raise
        raise CommandError(
            f"{error.filename or shown(address)}: {error.strerror or error}",
            hint="name a folder that exists, and can be written",
        ) from None
    except DBAPIError as error:
        raise CommandError(f"{shown(address)}: {error.orig}", hint=_remedy(address, error)) from None


def _remedy(address: str, error: DBAPIError) -> str:
    import sqlite3  # lazy: help starts without it

    from deuteron.server.files import is_full  # lazy: help starts without the service

    if is_full(error):
        return "make room on its disk"
    if getattr(error.orig, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:  # above are details
        return "another process is writing to it: try again once that is done"
    if address.startswith("sqlite"):
        return "name a file that is SQLite's, or is not there yet, and that can be written"
    return "does the database exist, and does it answer?"
