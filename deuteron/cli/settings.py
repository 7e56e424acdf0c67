"""The service's settings with what the command line changes, and the connection that client commands use."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from deuteron.server import Client, Settings

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        help="Address of the service. Default: DEUTERON_PUBLIC_URL, else this machine's.",
    ),
]


def settings_with(
    *,
    host: str | None = None,
    port: int | None = None,
    home: Path | None = None,
    database_url: str | None = None,
    scheduler: str | None = None,
    upstream: str | None = None,
) -> Settings:
    """The settings of the environment, changed where a value is given.

    Raises:
        SettingsError: a value cannot be used; the message names its variable.
    """
    from deuteron.server import Settings  # lazy: help starts without the service

    settings = Settings.from_environment(home=home)
    given: dict[str, Any] = {
        "host": host,
        "port": port,
        "database_url": database_url,
        "scheduler": scheduler,
        "upstream": upstream,
    }
    return dataclasses.replace(settings, **{name: value for name, value in given.items() if value is not None})


def connect(server: str | None) -> Client:
    """A client of the service, with the token of DEUTERON_TOKEN."""
    from deuteron.server import Client, Settings  # lazy: help starts without the service

    settings = Settings.from_environment()
    return Client(server or settings.base_url, token=settings.token)


def token_for(source: str) -> str:
    """The token of DEUTERON_TOKEN where ``source`` is the address of a service; files need none."""
    if "://" not in source:
        return ""
    from deuteron.server import Settings  # lazy: searches without a service need none of it

    return Settings.from_environment().token
