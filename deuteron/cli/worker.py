"""``deuteron worker``: measuring processes for a scheduler elsewhere."""

from __future__ import annotations

from typing import Annotated

import typer

from deuteron.compiler.extras import require_extras

from .log import start_logging
from .settings import settings_with


def worker(
    scheduler: Annotated[str, typer.Argument(metavar="ADDRESS", help="The Dask scheduler, tcp://host:8786.")],
    server: Annotated[
        str | None,
        typer.Option(help="Address of the service, where results go. Default: DEUTERON_PUBLIC_URL."),
    ] = None,
    device: Annotated[list[str] | None, typer.Option(help="May be repeated. Default: all of this machine.")] = None,
) -> None:
    """Measure on this machine's devices for a service elsewhere, one process a device.

    Results wait on disk while the service is away. DEUTERON_TOKEN is a token with the scope worker.

    Example: `deuteron worker tcp://scheduler:8786 --server http://tuner:8642 --device cuda:0`
    """
    require_extras("server", by="deuteron worker")
    from deuteron.server import run_worker  # lazy: help starts without the service

    start_logging()
    settings = settings_with()
    run_worker(scheduler, server_url=server or settings.base_url, settings=settings, devices=device or None)
