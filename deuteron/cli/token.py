"""``deuteron token``: who may use the service. These commands work on the database of the service's machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from deuteron.compiler.extras import require_extras
from deuteron.compiler.printable import printable_line
from deuteron.compiler.standard_streams import drop_output

from .database import explained, is_missing, make_home, shown
from .errors import CommandError
from .output import console, make_table, say, tell

if TYPE_CHECKING:
    from deuteron.server import ServiceStore
    from deuteron.server.store import Token

app = typer.Typer(no_args_is_help=True, help="Create, list and revoke bearer tokens of the service.")

_WHERE = "DEUTERON_HOME or DEUTERON_DATABASE_URL says where it is"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Scope(StrEnum):
    """What a token allows."""

    READ = "read"
    SUBMIT = "submit"
    WORKER = "worker"
    ADMIN = "admin"


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="Whose it is, for the list.")],
    scope: Annotated[list[Scope] | None, typer.Option(help="May be repeated. Default: read.")] = None,
    expires: Annotated[str | None, typer.Option(metavar="TIME", help="Lifetime such as 90d, 12h or 30m.")] = None,
) -> None:
    """Create a token and print its secret, which cannot be shown again.

    Example: `deuteron token create ci --scope read --scope submit --expires 90d`
    """
    if not name.strip():
        raise CommandError("the token has no name", hint="say whose it is: deuteron token create ci")
    until = None if expires is None else datetime.now(UTC) + _lifetime(expires)
    with _store() as store, store.write() as tx:
        scopes = [chosen.value for chosen in scope or [Scope.READ]]
        token, secret = tx.tokens.create(name, scopes, expires_at=until)
        _hand_out(secret)
    say(f"token {token.id} for {name}: {_scopes(token)}, {_state(token)}")


@app.command("list")
def list_tokens() -> None:
    """List all tokens, without their secrets.

    Example: `deuteron token list`
    """
    if missing := _missing_database():
        raise CommandError(missing, hint=_WHERE)
    with _store() as store, store.read() as tx:
        tokens = tx.tokens.all()
    table = make_table("id", "name", "scopes", "created (UTC)", "state")
    for token in tokens:
        created = f"{token.created_at:%Y-%m-%d %H:%M}"
        table.add_row(token.id, printable_line(token.name), _scopes(token), created, _state(token))
    console().print(table)


@app.command()
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")],
) -> None:
    """End a token now.

    Example: `deuteron token revoke 3f0c…`
    """
    if missing := _missing_database():
        raise CommandError(
            f"there is no token {token_id}: {missing}", hint=f"`deuteron token list` shows them; {_WHERE}"
        )
    with _store() as store, store.write() as tx:
        if all(token.id != token_id for token in tx.tokens.all()):
            raise CommandError(f"there is no token {token_id}", hint="`deuteron token list` shows them with their ids")
        token = tx.tokens.revoke(token_id)
    tell(f"token {token.id} of {printable_line(token.name)} is {_state(token)}")


def _missing_database() -> str:
    """That there is no database, in words; nothing where there is one. Who lists or ends tokens makes none."""
    require_extras("server", by="deuteron token")
    from deuteron.server import Settings  # lazy: help starts without the service

    address = Settings.from_environment().database_url
    return f"there is no database {shown(address)}" if is_missing(address) else ""


@contextmanager
def _store() -> Iterator[ServiceStore]:
    require_extras("server", by="deuteron token")
    from deuteron import migrations  # lazy: help starts without the service
    from deuteron.server import ServiceStore, Settings  # lazy: help starts without the service

    settings = Settings.from_environment()
    make_home(settings)
    with explained(settings.database_url):
        migrations.upgrade(settings.database_url)
        store = ServiceStore.open(settings.database_url)
        try:
            yield store
        finally:
            store.close()


def _hand_out(secret: str) -> None:
    """Print a secret before its token is kept: one that nobody has seen would open the service to nobody."""
    try:
        typer.echo(secret)
    except OSError as error:
        drop_output()
        raise CommandError(
            f"cannot write the secret: {error.strerror or error}", hint="the token was not created: try again"
        ) from None


def _lifetime(text: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,5})([smhd])", text)
    if match is None or int(match[1]) == 0:
        raise CommandError(f"--expires {text!r} is not a lifetime", hint="90d, 12h, 30m or 60s")
    return timedelta(seconds=int(match[1]) * _SECONDS[match[2]])


def _scopes(token: Token) -> str:
    return " ".join(sorted(token.scopes))


def _state(token: Token) -> str:
    if token.revoked_at is not None:
        return f"revoked {token.revoked_at:%Y-%m-%d %H:%M} UTC"
    if token.expires_at is None:
        return "does not expire"
    expired = token.expires_at <= datetime.now(UTC)
    return f"{'expired' if expired else 'expires'} {token.expires_at:%Y-%m-%d %H:%M} UTC"
