"""``deuteron keys``: the key that this machine signs bundles with, and those whose bundles it takes."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from .errors import CommandError
from .output import console, make_table, say, tell
from .signatures import key_folder

app = typer.Typer(no_args_is_help=True, help="Make, show, trust and list the keys that sign bundles.")

_SHORTEST_ID = 8


@app.command()
def create() -> None:
    """Make this machine's key and print the public one. `deuteron serve` does so at its first start.

    Example: `deuteron keys create`
    """
    folder = key_folder()
    key = folder.create()
    say(f"key {key.id}, private in {folder.own_path}")
    typer.echo(key.public_key)


@app.command()
def show() -> None:
    """Print the public key of this machine, for `deuteron keys trust` elsewhere.

    Example: `deuteron keys show`
    """
    folder = key_folder()
    key = folder.own()
    if key is None:
        raise CommandError(f"there is no key {folder.own_path}", hint="deuteron keys create")
    say(f"key {key.id}, private in {folder.own_path}")
    typer.echo(key.public_key)


@app.command()
def trust(
    public_key: Annotated[str, typer.Argument(metavar="KEY", help="A public key as `keys show` prints it.")],
    name: Annotated[str, typer.Option(help="Whose it is, for the list.")] = "trusted by hand",
    service: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A service that has it: no other key is taken as the first one from there."),
    ] = None,
) -> None:
    """Take bundles that are signed with a key, from every service and in files. Several may be trusted.

    Example: `deuteron keys trust 3b6a… --name company --service http://tuner:8642`
    """
    if re.fullmatch(r"[0-9a-f]{64}", public_key) is None:
        raise CommandError(
            f"{public_key!r} is not a public key", hint="64 hexadecimal digits; `deuteron keys show` prints them there"
        )
    key = key_folder().trust(public_key, name, service=None if service is None else _address(service))
    tell(f"key {key.id} ({key.name}) is trusted")


@app.command()
def forget(
    key: Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it; its beginning will do.")],
) -> None:
    """Trust a key no longer.

    Example: `deuteron keys forget 4f9c2a1b`
    """
    folder = key_folder()
    found = [known for known in folder.trusted() if len(key) >= _SHORTEST_ID and known.id.startswith(key)]
    if len(found) != 1:
        raise CommandError(f"{key!r} is not the id of one trusted key", hint="`deuteron keys list` shows them")
    folder.forget(found[0])
    tell(f"key {found[0].id} ({found[0].name}) is trusted no longer")


@app.command("list")
def list_keys() -> None:
    """List this machine's key and those that it trusts.

    Example: `deuteron keys list`
    """
    folder = key_folder()
    shown = folder.services()
    table = make_table("id", "name", "counts for", "since (UTC)", "shown by")
    own = folder.own()
    if own is not None:
        table.add_row(own.id, "this machine", "everything", "", ", ".join(shown.pop(own.id, ())))
    for key in folder.trusted():
        where = "everything" if key.servers is None else f"{', '.join(key.servers)}, files"
        table.add_row(key.id, key.name, where, key.added_at, ", ".join(shown.pop(key.id, ())))
    for forgotten, services in shown.items():
        table.add_row(forgotten, "trusted no longer", "nothing", "", ", ".join(services))
    console().print(table)


def _address(service: str) -> str:
    from deuteron.tuner.records.trust import server_address  # lazy: help starts without the tuner

    if re.match(r"(?i:https?)://[^/]", service) is None:
        raise CommandError(f"{service!r} is not the address of a service", hint="http://host:port")
    return server_address(service)
