"""What every route under /v1 has in common: callers are admitted before anything else that they send is looked at, JSON
is read strictly, and a parameter that nobody knows, or that is given twice, is refused."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Coroutine, Iterator, Sequence
from inspect import iscoroutinefunction
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from ..auth import admit, scope_of
from ..context import context_of
from ..problems import HttpProblem, other_type
from ..strict_json import read_json

# Larger bodies are read in a thread: in the event loop every other request would wait for that.
_READ_AT_ONCE = 64 << 10
# The type itself, not one of those that are written in JSON; its parameters, such as a charset, change nothing.
_WORD = r"[\w!#$%&'*+.^`|~-]+"
_JSON = re.compile(rf'application/json\s*(;\s*({_WORD}=({_WORD}|"[^"\\]*")\s*)?)*', re.ASCII | re.IGNORECASE)
_WRITING = {"POST", "PUT", "PATCH", "DELETE"}


class StrictRequest(Request):
    """A request whose body is read by :func:`~..strict_json.read_json`."""

    async def json(self) -> Any:
        """The body as JSON; raises as :func:`~..strict_json.read_json`."""
        body = await self.body()
        return read_json(body) if len(body) <= _READ_AT_ONCE else await to_thread.run_sync(read_json, body)


class StrictRoute(APIRoute):
    """A route that looks at the token before the body, which FastAPI reads first, and refuses query parameters it does
    not declare: `?stat=queued` would list everything otherwise, and look like an answer."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of FastAPI behind all checks."""
        handle = super().get_route_handler()
        scopes = [scope for inner in self.dependant.dependencies if (scope := scope_of(inner.call)) is not None]
        known = sorted(set(_parameters(self.dependant)))
        writes = self._writes_in_a_thread(scopes)

        async def checked(request: Request) -> Response:
            context = await context_of(request)
            for scope in scopes:
                await admit(request, context, scope)
            _refuse_odd(request, known)
            _refuse_packed(request)
            if self.body_field is not None:
                _refuse_other_types(request)
            strict = StrictRequest(request.scope, request.receive)
            if not writes:
                return await handle(strict)
            await strict.body()  # a slow client takes nobody's place
            async with context.writers.place():
                return await handle(strict)

        return checked

    def _writes_in_a_thread(self, scopes: Sequence[str]) -> bool:
        """Whether it holds one of the threads that answer requests while it waits for the database's writers."""
        return (
            bool((self.methods or set()) & _WRITING)
            and set(scopes) != {"read"}
            and not iscoroutinefunction(self.endpoint)
        )


def make_router(tag: str, prefix: str = "") -> APIRouter:
    """A router of strict routes."""
    return APIRouter(prefix=prefix, tags=[tag], route_class=StrictRoute)


def _parameters(dependant: Dependant) -> Iterator[str]:
    for parameter in dependant.query_params:
        yield parameter.alias
    for inner in dependant.dependencies:
        yield from _parameters(inner)


def _refuse_packed(request: Request) -> None:
    """Raises:
    Problem: 415, the body is not as it is, but in a coding such as gzip.
    """
    codings = ",".join(request.headers.getlist("content-encoding")).lower()
    if request.method in ("POST", "PUT") and {coding.strip() for coding in codings.split(",")} - {"", "identity"}:
        raise HttpProblem(
            415,
            "unsupported-content-encoding",
            f"the body has Content-Encoding {codings[:40]!r}",
            hint="send it as it is",
            headers={"Accept-Encoding": "identity"},
        )


def _refuse_other_types(request: Request) -> None:
    """Raises:
    HttpProblem: 415, the body says that it is something else than JSON. FastAPI says so where it does not say.
    """
    kind = request.headers.get("content-type", "")
    if kind and not _JSON.fullmatch(kind):
        raise other_type(kind)


def _refuse_odd(request: Request, known: list[str]) -> None:
    """Raises:
    HttpProblem: 422, a parameter that is not known, or one given twice: no route takes several values.
    """
    for name in request.query_params:
        if name in known:
            if len(request.query_params.getlist(name)) > 1:
                raise HttpProblem(
                    422, "repeated-parameter", f"query.{name}: given more than once", hint="ask once for each value"
                )
            continue
        close = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known) or 'none'}"
        raise HttpProblem(
            422, "unknown-parameter", f"query.{name[:80]}: {request.url.path} has no such parameter", hint=hint
        )
