"""What the OpenAPI page says beyond what FastAPI reads off the routes."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI

from . import problems

DESCRIPTION = """\
Tunes tile kernels and keeps the best configuration for every GPU and shape.

Submit a job to `POST /v1/jobs`, follow it at `/v1/jobs/{id}/events`, ask `GET /v1/configs/lookup` for the
configuration to launch with, or take everything home from `GET /v1/bundles/latest`.

Every error is a problem document (RFC 9457): `detail` says what is wrong and where, `hint` what would work.
"""

#: Every text, because no database keeps the character U+0000: :mod:`.strict_json` and :mod:`.hosts` refuse it.
_TEXT_PATTERN = r"^[^\x00]*$"
#: Where a schema says more about a text than that it is one.
_SAYS_MORE = ("pattern", "enum", "const", "format", "contentMediaType")


def _problem(description: str, status: HTTPStatus, slug: str, detail: str, hint: str) -> dict[str, Any]:
    example = {
        "type": f"urn:deuteron:problem:{slug}",
        "title": status.phrase,
        "status": status.value,
        "detail": detail,
        "hint": hint,
    }
    content = {problems.MEDIA_TYPE: {"schema": {"type": "object"}, "example": example}}
    return {"description": description, "content": content}


#: What every address may answer besides what it is there for.
ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": _problem(
        "A problem document (RFC 9457).",
        HTTPStatus.NOT_FOUND,
        "not-found",
        "there is no job 1234",
        "GET /v1/jobs lists them",
    ),
    "503": _problem(
        "The database does not answer, or too many kernels are being compiled; `Retry-After` says when to ask again.",
        HTTPStatus.SERVICE_UNAVAILABLE,
        "database-unavailable",
        "the database did not answer",
        "try again; /readyz tells when it is back",
    ),
}


def describe(app: FastAPI, *, with_tokens: bool) -> None:
    """Have ``app.openapi`` say the rest. A single-user service promises no 401, so its description names no token."""
    from_routes = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        document = from_routes()
        if not with_tokens:
            _drop_tokens(document)
        for part in _parts(document):
            if "in" in part and "schema" in part:
                part["schema"] = _without_null(part["schema"])
            _describe_text(part)
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's documentation does


def _drop_tokens(document: dict[str, Any]) -> None:
    for operations in document["paths"].values():
        for operation in operations.values():
            operation.pop("security", None)
    document.get("components", {}).pop("securitySchemes", None)


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter can be left out, which Python writes as None; no address has a place for null."""
    options = [option for option in schema.get("anyOf", []) if option != {"type": "null"}]
    if len(options) != 1:
        return schema
    return {**options[0], **{key: value for key, value in schema.items() if key != "anyOf"}}


def _describe_text(schema: dict[str, Any]) -> None:
    if schema.get("type") == "string" and not any(key in schema for key in _SAYS_MORE):
        schema["pattern"] = _TEXT_PATTERN


def _parts(value: object) -> Iterator[dict[str, Any]]:
    """Every object of a document, examples left out: they are what a schema describes, not schemas."""
    if isinstance(value, dict):
        yield value
        for key, item in value.items():
            if key not in ("example", "examples", "default"):
                yield from _parts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _parts(item)
