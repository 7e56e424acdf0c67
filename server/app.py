"""The application: middleware, resources, pages, and what starts and stops with it."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import to_thread
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deuteron import __version__
from deuteron.tuner.records.trust import KeyFolder

from . import openapi, problems
from .api import bundles, configs, devices, events, health, jobs, kernels, searches, tokens, worker, workers, workloads
from .bundles import Bundles, signing_key
from .caching import CacheControl
from .context import ServiceContext
from .cookies import OwnCookie
from .dispatch import Dispatcher, NoDispatcher
from .dispatch.ingest import Ingest
from .feeds import Feeds
from .head import HeadAsGet
from .hosts import LoopbackOnly, WellFormed
from .learning.trainer import Trainer
from .limits import BodyLimit, RateLimit
from .lookups import Lookups
from .metrics import Metrics
from .pages import install_pages
from .predictors import FILE_NAME, Predictors
from .ranges import OneRange
from .read_through import ReadThrough
from .settings import NO_DISPATCH, Settings
from .shortcut import LookupShortcut
from .signals import JobSignals
from .store import ServiceStore
from .upstream import Upstream
from .writers import Writers

logger = logging.getLogger("deuteron.server")


def create_app(settings: Settings, *, store: ServiceStore | None = None) -> FastAPI:
    """The service as an ASGI application. Its database must be migrated.

    The dispatcher starts with the application's lifespan, so a test that wants none of it uses
    ``Settings(scheduler="none")``.
    """
    owned = store is None
    context = make_context(settings, store or ServiceStore.open(settings.database_url))

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        if not settings.requires_tokens:
            logger.warning("single-user mode on %s: no token is required from this machine", settings.host)
        context.dispatcher.start(settings.base_url)
        yield
        await to_thread.run_sync(context.dispatcher.close)
        if context.upstream is not None:
            context.upstream.close()
        if owned:
            context.store.close()

    app = FastAPI(
        title="deuteron",
        version=__version__,
        description=openapi.DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=openapi.ERRORS,
    )
    app.state.context = context
    openapi.describe(app, with_tokens=settings.requires_tokens)
    problems.install(app)
    for module in (
        workloads,
        jobs,
        events,
        kernels,
        searches,
        configs,
        bundles,
        devices,
        workers,
        tokens,
        worker,
        health,
    ):
        app.include_router(module.router)
    install_pages(app)
    # The last one added is the outermost.
    app.add_middleware(LookupShortcut, context=context)
    app.add_middleware(BodyLimit, settings=settings)
    app.add_middleware(RateLimit, settings=settings)
    app.add_middleware(LoopbackOnly, settings=settings)
    app.add_middleware(OneRange)
    app.add_middleware(OwnCookie)
    app.add_middleware(WellFormed)
    app.add_middleware(CacheControl, settings=settings)
    app.add_middleware(Timing, metrics=context.metrics)
    app.add_middleware(HeadAsGet)
    return app


def make_context(settings: Settings, store: ServiceStore) -> ServiceContext:
    """Everything that the resources of one application share; starts nothing."""
    signals, metrics = JobSignals(), Metrics()
    trainer = Trainer(settings, store, metrics)
    ingest = Ingest(settings, store, signals, metrics, ended=trainer.note)
    internal_token = secrets.token_urlsafe(32)
    predictors = Predictors(settings.home / FILE_NAME)
    lookups, upstream = Lookups(store, metrics, predictors), _make_upstream(settings, metrics)
    return ServiceContext(
        settings=settings,
        store=store,
        feeds=Feeds(store, signals),
        metrics=metrics,
        ingest=ingest,
        lookups=lookups if upstream is None else ReadThrough(lookups, store, upstream, metrics),
        bundles=Bundles(
            settings.directory("bundles"),
            store,
            predictors,
            service=settings.base_url,
            key=signing_key(settings),
        ),
        dispatcher=_make_dispatcher(settings, store, ingest, internal_token, trainer),
        trainer=trainer,
        upstream=upstream,
        internal_token=internal_token,
        writers=Writers(),
    )


def _make_upstream(settings: Settings, metrics: Metrics) -> Upstream | None:
    if not settings.upstream:
        return None
    keys, folder = KeyFolder(settings.keys), settings.directory("upstream")
    return Upstream(settings.upstream, keys, folder, metrics, token=settings.upstream_token)


def _make_dispatcher(
    settings: Settings, store: ServiceStore, ingest: Ingest, token: str, trainer: Trainer
) -> Dispatcher:
    if settings.scheduler == NO_DISPATCH:
        return NoDispatcher()
    from .dispatch.supervisor import DaskDispatcher  # lazy: only where this process dispatches

    return DaskDispatcher(settings, store, ingest, token, trainer)


class Timing:
    """Measures every request under its route's template, so that ids do not multiply the series."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 500

        async def noting_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noting_send)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self.metrics.observe(route, time.perf_counter() - started)
            self.metrics.count("requests", route=route, status=str(status))
