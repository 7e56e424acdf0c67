"""/docs: every address of the API, read from its own OpenAPI description."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from .html import Child, table, tag
from .layout import page

router = APIRouter(include_in_schema=False)


@router.get("/docs")
def docs_page(request: Request) -> Response:
    description = request.app.openapi()
    groups: dict[str, list[Child]] = {}
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            groups.setdefault(operation["tags"][0], []).append(_row(method, path, operation))
    sections = [
        (
            tag("h2", name),
            table(["Method", "Address", "What it does"], rows, caption=f"Addresses of {name}"),
        )
        for name, rows in groups.items()
    ]
    return page(
        "API",
        tag(
            "div",
            tag("h1", "HTTP API"),
            tag("a", "openapi.json", href="/openapi.json", class_="button"),
            class_="title",
        ),
        sections,
        current="/docs",
    )


def with_code(text: str) -> list[Child]:
    """Text in which `this` is code."""
    parts = text.split("`")
    return [tag("code", part) if index % 2 else part for index, part in enumerate(parts)]


def _row(method: str, path: str, operation: dict[str, str]) -> Child:
    detail = operation.get("description", "").split("\n\n")[0]
    return tag(
        "tr",
        tag("td", tag("code", method.upper())),
        tag("td", tag("code", path)),
        tag(
            "td",
            tag("strong", operation["summary"]),
            tag("p", with_code(detail), class_="muted") if detail else None,
        ),
    )
