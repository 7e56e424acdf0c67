"""Problem documents (RFC 9457): every error of the service leaves in this form, from here."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import cast

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, RedirectResponse, Response
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from deuteron.compiler.errors import CompilationError, DeuteronError
from deuteron.tuner.errors import Fault, WorkloadError

from .database import DatabaseLost, DatabaseReadOnly
from .files import is_full
from .store import Conflict, InvalidToken, JobIsFinal, JobIsTaken, NotFound, WorkerIsDraining

logger = logging.getLogger("deuteron.server")

MEDIA_TYPE = "application/problem+json"
_TYPE_PREFIX = "urn:deuteron:problem:"
#: Errors that one answer lists: a body of 4 MiB can have several hundred thousand.
MOST_ERRORS = 20
_HOW_TO_SEND = "send one JSON document with Content-Type: application/json"
_MOST_NAME = 80  # of a field that nobody knows, in characters
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

_STATUS: dict[str, int] = {
    NotFound.__name__: 404,
    "RecordNotFound": 404,
    Conflict.__name__: 422,
    JobIsFinal.__name__: 409,
    JobIsTaken.__name__: 409,
    WorkerIsDraining.__name__: 409,
    InvalidToken.__name__: 401,
}


class HttpProblem(HTTPException):
    """An error answer with a title of its own.

    It derives from HTTPException so that it passes through FastAPI's body reader unchanged.
    """

    def __init__(
        self,
        status: int,
        slug: str,
        detail: str,
        *,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.slug = slug
        self.hint = hint
        self.members = members


def problem_response(
    status: int,
    slug: str,
    detail: str,
    *,
    hint: str | None = None,
    headers: Mapping[str, str] | None = None,
    members: Mapping[str, object] | None = None,
) -> JSONResponse:
    """The document. ``hint`` and ``members`` are extension members as section 3.2 allows."""
    document: dict[str, object] = {
        "type": _TYPE_PREFIX + slug,
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    if hint:
        document["hint"] = hint
    document.update(members or {})
    return JSONResponse(document, status, dict(headers or {}), MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Send every error of the application through this module."""
    app.add_exception_handler(StarletteHTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(DeuteronError, _on_deuteron)
    app.add_exception_handler(OperationalError, _on_database)
    app.add_exception_handler(OSError, _on_system)
    app.add_exception_handler(ClientDisconnect, _on_leaving)
    app.add_exception_handler(Exception, _on_bug)


async def _on_http(request: Request, error: Exception) -> Response:
    error = cast(StarletteHTTPException, error)
    if isinstance(error, HttpProblem):
        if error.status_code == 401 and _is_page(request):
            return RedirectResponse("/login", 303)
        return problem_response(
            error.status_code,
            error.slug,
            error.detail,
            hint=error.hint,
            headers=error.headers,
            members=error.members,
        )
    slug = HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
    detail = str(error.detail)
    hint, headers = None, error.headers
    if error.status_code == 404:
        detail, hint = f"there is nothing at {request.url.path}", "GET /docs lists every address"
    elif error.status_code == 405:
        allowed = ", ".join(_methods_at(request))
        detail = f"{request.url.path} does not accept {request.method}"
        hint, headers = f"allowed: {allowed}", {"Allow": allowed}
    elif error.status_code == 400:
        hint = "the body must be one JSON document"
    return problem_response(error.status_code, slug, detail, hint=hint, headers=headers)


def _methods_at(request: Request) -> list[str]:
    """What the address accepts: of all routes that match it, while Starlette's own header names the first. An address
    that the API spells out is not one of those with a parameter in that place."""
    described = request.app.openapi()["paths"].get(request.url.path)
    if described is not None:
        return _with_head(method.upper() for method in described)
    return _with_head(method for method in _METHODS if _accepts(request, method))


def _accepts(request: Request, method: str) -> bool:
    scope = {**request.scope, "method": method}
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)


def _with_head(methods: Iterable[str]) -> list[str]:
    """With the method that :mod:`.head` adds."""
    found = set(methods)
    return sorted(found | {"HEAD"} if "GET" in found else found)


def other_type(kind: str | None) -> HttpProblem:
    """415: the body is of another type than JSON, or of none."""
    said = f"the body is {kind[:_MOST_NAME]!r}, not JSON" if kind else "the body has no Content-Type"
    return HttpProblem(415, "unsupported-media-type", said, hint=_HOW_TO_SEND)


async def _on_validation(request: Request, error: Exception) -> Response:
    error = cast(RequestValidationError, error)
    faults: Sequence[Mapping[str, object]] = error.errors()
    shown, more = faults[:MOST_ERRORS], max(0, len(faults) - MOST_ERRORS)
    errors = [{"where": _pointer(fault["loc"]), "message": fault["msg"]} for fault in shown]
    first = errors[0] if errors else {"where": "the request", "message": "it is not valid"}
    if any(fault["type"] == "json_invalid" for fault in shown):
        position = next((fault["loc"] for fault in shown if fault["type"] == "json_invalid"), ("body", 0))
        offset = position[-1] if isinstance(position, tuple | list) else 0
        return problem_response(
            400,
            "bad-json",
            f"the body is not JSON: {_json_reason(faults)} at character {offset}",
            hint=_HOW_TO_SEND,
        )
    # Bytes as they came: by its type the body is no JSON.
    if isinstance(error.body, bytes) and any(_pointer(fault["loc"]) == "body" for fault in shown):
        return await _on_http(request, other_type(request.headers.get("content-type")))
    return problem_response(
        422,
        "invalid-request",
        f"{first['where']}: {first['message']}",
        members={"errors": errors, **({"more_errors": more} if more else {})},
    )


def _is_page(request: Request) -> bool:
    """Whether a person's browser asked for one of the pages."""
    accepts_html = "text/html" in request.headers.get("accept", "")
    return accepts_html and not request.url.path.startswith("/v1/")


def _json_reason(faults: Sequence[Mapping[str, object]]) -> str:
    context = faults[0].get("ctx")
    reason = context.get("error") if isinstance(context, Mapping) else None
    return str(reason or "unexpected text")


def _pointer(location: object) -> str:
    parts = location if isinstance(location, tuple | list) else (location,)
    return ".".join(str(part)[:_MOST_NAME] for part in parts)


async def _on_deuteron(request: Request, error: Exception) -> Response:
    error = cast(DeuteronError, error)
    if is_full(error.__cause__):
        return await _on_system(request, error)
    name = type(error).__name__
    status = _STATUS.get(name, 422)
    slug = "".join("-" + c.lower() if c.isupper() else c for c in name).lstrip("-")
    if status == 401 and _is_page(request):
        return RedirectResponse("/login", 303)
    headers = {"WWW-Authenticate": 'Bearer error="invalid_token"'} if status == 401 else None
    members: dict[str, object] = {}
    if isinstance(error, CompilationError) and error.location is not None:
        members["location"] = {
            "file": error.location.file,
            "line": error.location.line,
            "column": error.location.column + 1,
        }
        members["source"] = error.source_line
        members["report"] = str(error)
    if isinstance(error, WorkloadError) and error.faults:
        members["errors"] = fault_list(error.faults)
    return problem_response(status, slug, error.message, hint=error.hint, headers=headers, members=members)


def fault_list(faults: Sequence[Fault]) -> list[dict[str, str | None]]:
    """The member ``errors`` of a problem document: every field that is wrong, why, and what would do."""
    return [{"where": fault.where, "message": fault.message, "hint": fault.hint} for fault in faults]


async def _on_database(request: Request, error: Exception) -> JSONResponse:
    if is_full(error):
        return await _on_system(request, error)
    if isinstance(error, DatabaseLost):  # which the log has
        return problem_response(503, "database-lost", error.message, hint=error.hint)
    if isinstance(error, DatabaseReadOnly):
        logger.error("%s; %s", error.message, error.hint)
        return problem_response(
            503, "database-read-only", error.message, hint=error.hint, headers={"Retry-After": "10"}
        )
    logger.error("the database did not answer: %s", error)
    return problem_response(
        503,
        "database-unavailable",
        "the database did not answer",
        hint="try again; /readyz tells when it is back",
        headers={"Retry-After": "2"},
    )


async def _on_system(request: Request, error: Exception) -> JSONResponse:
    if not is_full(error):
        return await _on_bug(request, error)
    # Not a refusal: workers come again with what they measured.
    logger.error("no room on the disk: %s", error)
    return problem_response(
        503,
        "disk-full",
        "the service has no room left on its disk",
        hint="make room where DEUTERON_HOME is",
        headers={"Retry-After": "10"},
    )


async def _on_leaving(request: Request, error: Exception) -> JSONResponse:
    """Nobody reads it, but it is counted: a client that goes away before its body is complete is no defect."""
    return problem_response(400, "body-cut-off", "the client left before its body was complete")


async def _on_bug(request: Request, error: Exception) -> JSONResponse:
    # The traceback goes to the log under an id; the client sees only the id.
    incident = str(uuid.uuid4())
    logger.error("incident %s: %s %s", incident, request.method, request.url.path, exc_info=error)
    return problem_response(
        500,
        "internal",
        "the service failed to answer this request",
        hint=f"report incident {incident}; the server's log has the details",
        members={"instance": f"urn:uuid:{incident}"},
    )
