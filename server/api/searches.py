"""/v1/searches: what earlier searches of a kernel measured, for searches that start from them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from deuteron.tuner.experience.search_log import MOST_LOGS

from ..auth import Reader
from ..context import ContextDep
from ..searches import known_searches
from .routes import make_router
from .schemas.fleet import SearchesAnswer

router = make_router("searches", "/v1/searches")


@router.get("", summary="Read what earlier searches of a kernel measured")
def get_searches(
    context: ContextDep,
    _reader: Reader,
    kernel: Annotated[str, Query(min_length=1, max_length=200, description="Name or hash of the kernel.")],
    limit: Annotated[int, Query(ge=1, le=MOST_LOGS)] = MOST_LOGS,
) -> SearchesAnswer:
    """Newest first; of each the configurations that worked, fastest first. `deuteron tune --from` asks for it."""
    with context.store.read() as tx:
        logs = known_searches(tx, kernel, limit=limit)
    return SearchesAnswer(searches=[log.to_json() for log in logs])
