"""/healthz, /readyz and /metrics: for load balancers and Prometheus, without a token."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter
from fastapi.responses import JSONResponse, PlainTextResponse
from sqlalchemy.exc import SQLAlchemyError

from deuteron import migrations

from ..context import ContextDep, ServiceContext
from ..database import DatabaseLost
from ..fleet import connected_workers
from ..metrics import CONTENT_TYPE
from ..problems import problem_response

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Is the process alive?")
async def healthz(context: ContextDep) -> dict[str, str]:
    # A coroutine: it must not wait for a thread while other requests have them all.
    """Always 200 while the process answers. `auth` tells whether tokens are required, `dispatch`
    whether this process is the one that brings the jobs of its database to workers."""
    auth = "tokens" if context.settings.requires_tokens else "single user on loopback, no tokens"
    return {
        "status": "ok",
        "auth": auth,
        "scheduler": context.settings.scheduler.split(":")[0],
        "dispatch": "here" if context.dispatcher.leads else "elsewhere",
    }


@router.get("/readyz", summary="Can the service work?")
def readyz(context: ContextDep) -> JSONResponse:
    """200 when the database answers, is where it was opened, and its schema is the one this version knows; 503
    otherwise."""
    try:
        if context.store.database.is_lost():
            return problem_response(
                503,
                "not-ready",
                DatabaseLost.message,
                hint=DatabaseLost.hint,
            )
        revision = migrations.revision_of(context.store.database.engine)
    except SQLAlchemyError as error:
        return problem_response(503, "not-ready", f"the database does not answer: {error}")
    head = migrations.head()
    if revision != head:
        return problem_response(
            503,
            "not-ready",
            f"the database is at revision {revision}, this version needs {head}",
            hint=migrations.remedy(revision),
        )
    return JSONResponse({"status": "ready", "revision": revision})


@router.get("/metrics", summary="Prometheus metrics", response_class=PlainTextResponse)
def metrics(context: ContextDep) -> PlainTextResponse:
    return PlainTextResponse(context.metrics.render(_gauges(context)), media_type=CONTENT_TYPE)


def _gauges(context: ServiceContext) -> Iterator[tuple[str, dict[str, str], float]]:
    with context.store.read() as tx:
        jobs, configs, workers = tx.jobs.count_by_state(), tx.configs.count(), connected_workers(tx)
    yield "configs", {}, configs
    for state, count in jobs.items():
        yield "jobs", {"state": state.value}, count
    yield "workers", {}, len(workers)
    if context.trainer.trained_at is not None:
        yield "last_training_timestamp_seconds", {}, context.trainer.trained_at
