"""What the resources share: one value per application, made by :func:`deuteron.server.create_app`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, cast

from fastapi import Depends, Request

from .feeds import Feeds
from .metrics import Metrics
from .settings import Settings
from .store import ServiceStore
from .writers import Writers

if TYPE_CHECKING:
    from .bundles import Bundles
    from .dispatch import Dispatcher
    from .dispatch.ingest import Ingest
    from .learning.trainer import Trainer
    from .lookups import Lookups
    from .read_through import ReadThrough
    from .upstream import Upstream


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """``internal_token`` is what embedded workers present; it never leaves this machine's memory."""

    settings: Settings
    store: ServiceStore
    feeds: Feeds
    metrics: Metrics
    ingest: Ingest
    lookups: Lookups | ReadThrough
    bundles: Bundles
    dispatcher: Dispatcher
    trainer: Trainer
    upstream: Upstream | None
    internal_token: str
    writers: Writers


async def context_of(request: Request) -> ServiceContext:
    # A coroutine, because FastAPI sends plain functions to a thread, which costs more than this does.
    """The context of the application that serves ``request``."""
    return cast(ServiceContext, request.app.state.context)


ContextDep = Annotated[ServiceContext, Depends(context_of)]
