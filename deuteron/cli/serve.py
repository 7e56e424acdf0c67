"""``deuteron serve``: the service on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deuteron.compiler.extras import require_extras

from .database import explained
from .log import start_logging
from .settings import settings_with


def serve(
    host: Annotated[str | None, typer.Option(help="Address to bind (DEUTERON_HOST).")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="0 picks a free one (DEUTERON_PORT).")] = None,
    home: Annotated[Path | None, typer.Option(help="Data directory (DEUTERON_HOME).")] = None,
    database: Annotated[str | None, typer.Option(help="Database address (DEUTERON_DATABASE_URL).")] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(help="embedded, none, or a Dask scheduler tcp://... (DEUTERON_SCHEDULER)."),
    ] = None,
    upstream: Annotated[
        str | None,
        typer.Option(metavar="URL", help="A service that is asked for what this one has not (DEUTERON_UPSTREAM)."),
    ] = None,
) -> None:
    """Run the service: REST API, pages and, unless a scheduler is named, workers for this machine's devices.

    Options win over the environment; docs/http-api.md lists all settings. Ctrl-C stops it.

    Example: `deuteron serve --port 8642`
    """
    require_extras("server", by="deuteron serve")
    from deuteron.server import serve as run_service  # lazy: help starts without the service

    start_logging()
    settings = settings_with(
        host=host, port=port, home=home, database_url=database, scheduler=scheduler, upstream=upstream
    )
    with explained(settings.database_url):
        run_service(settings)
