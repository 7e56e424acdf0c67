"""Running the service: migrate, bind, listen."""

from __future__ import annotations

import dataclasses
import gc
import logging
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deuteron import migrations

from .backup import refuse_unfinished
from .connections import Room, raise_descriptor_limit
from .database import close_to_others
from .homes import require_shared_home
from .interrupts import stop_request
from .settings import EMBEDDED, Settings, SettingsError
from .store import ServiceStore

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

logger = logging.getLogger("deuteron.server")


def serve(settings: Settings) -> None:
    """Run until SIGINT or SIGTERM. Brings the database to the newest revision first.

    Raises:
        SettingsError: the address cannot be bound, others could reach the service while nobody has a token, or another
            server of the database has another home.
        DeuteronError: there is no such runner, or the signing key is none.
    """
    from .app import create_app  # lazy: fastapi takes half a second
    from .dispatch.run import load_runner  # lazy: as create_app, which brings it
    from .serving import ServiceServer  # lazy: as create_app, beside uvicorn

    room = Room.within(raise_descriptor_limit())
    settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    refuse_unfinished(settings)
    if settings.scheduler == EMBEDDED:
        load_runner(settings.runner)  # a wrong one would fail every job
    migrations.upgrade(settings.database_url)
    close_to_others(settings.database_url)  # which is known to be a database only now
    store = ServiceStore.open(settings.database_url)
    try:
        require_tokens_exist(settings, store)
        require_shared_home(settings, store)
        listener = bind(settings)
        settings = dataclasses.replace(settings, port=listener.getsockname()[1])
        with stop_request() as stop:
            app = create_app(settings, store=store)
            server = ServiceServer(server_config(app, settings, room), room, app.state.context.feeds.stop)
            logger.info("listening on %s", settings.base_url)
            gc.collect()
            gc.freeze()  # all that was imported stays: to look through it anew keeps every request waiting for 0.1 s
            stop.run(server, listener)
    finally:
        store.close()


def server_config(app: FastAPI, settings: Settings, room: Room) -> uvicorn.Config:
    """How uvicorn serves the application, whose connections are in ``room``."""
    import uvicorn

    from .protocol import patient_protocol  # lazy: as uvicorn

    return uvicorn.Config(
        app,
        http=patient_protocol(settings.body_seconds, room),
        ws="none",  # there is no WebSocket here: a request for one is answered as any other
        log_level="warning",
        access_log=False,
        # Whoever may say where a request comes from evades limits: uvicorn would believe every program on this host.
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=settings.proxies,
        # Connections that are accepted at once, before any other can make room for them. See also ServiceServer.
        backlog=min(2048, max(1, room.most // 4)),
        # Downloads may take longer.
        timeout_graceful_shutdown=3,
    )


def bind(settings: Settings) -> socket.socket:
    """The listening socket; binding here and not in uvicorn tells workers the real port.

    Raises:
        SettingsError: the address is in use or not this machine's.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # The protocol is named because asyncio turns Nagle's algorithm off only on sockets that name it; with it
    # every answer waits 40 ms for a delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host.strip("[]"), settings.port))
        # Whoever reads the address may connect while the application is still made; uvicorn sets its own backlog.
        listener.listen()
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"cannot listen on {settings.host}:{settings.port}: {error.strerror or error}",
            hint="DEUTERON_PORT=0 picks a free port",
        ) from None
    listener.set_inheritable(False)
    return listener


def require_tokens_exist(settings: Settings, store: ServiceStore) -> None:
    """Raises:
    SettingsError: tokens are required and there is no valid administrator's token.
    """
    why = settings.why_tokens
    if why is None:
        return
    now = datetime.now(UTC)
    with store.read() as tx:
        usable = [
            token
            for token in tx.tokens.all()
            if token.revoked_at is None
            and (token.expires_at is None or token.expires_at > now)
            and "admin" in token.scopes
        ]
    if not usable:
        raise SettingsError(
            f"{why}, and there is no administrator's token yet",
            hint="run `deuteron token create NAME --scope admin` first",
        )
