"""The frame of every page."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from importlib.resources import files

from fastapi.responses import HTMLResponse

from .html import Child, Markup, join, tag

_SECTIONS = (
    ("Jobs", "/"),
    ("Configs", "/configs"),
    ("Coverage", "/coverage"),
    ("Workers", "/workers"),
    ("API", "/docs"),
)


def content_security_policy(*, charts: bool) -> str:
    """Only our own files; no inline script anywhere. Plotly positions its parts with style elements that it
    makes itself, so pages with a chart allow inline styles."""
    style = "'self' 'unsafe-inline'" if charts else "'self'"
    return (
        f"default-src 'none'; script-src 'self'; style-src {style}; img-src 'self' data: blob:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


@cache
def static_url(name: str) -> str:
    """Address of a file of ``server/static`` that changes with its content, so it can be cached for ever."""
    content = files("deuteron.server").joinpath("static", name).read_bytes()
    return f"/static/{sha256(content).hexdigest()[:12]}/{name}"


def page(
    title: str,
    *body: Child,
    current: str = "",
    scripts: tuple[str, ...] = (),
    charts: bool = False,
    status: int = 200,
) -> HTMLResponse:
    """A whole page. ``scripts`` are addresses of our own files."""
    document = tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("title", f"{title} · deuteron"),
            tag("link", rel="icon", href=static_url("icon.svg"), type="image/svg+xml"),
            tag("link", rel="stylesheet", href=static_url("deuteron.css")),
            [tag("script", src=script, defer=True) for script in scripts],
        ),
        tag(
            "body",
            tag("a", "Skip to content", href="#content", class_="skip"),
            tag("header", tag("a", "deuteron", href="/", class_="brand"), _navigation(current)),
            tag("main", *body, id="content"),
        ),
        lang="en",
    )
    headers = {
        "Content-Security-Policy": content_security_policy(charts=charts),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",
        "Cache-Control": "no-store",
    }
    return HTMLResponse("<!doctype html>" + document, status, headers)


def _navigation(current: str) -> Markup:
    links = [
        tag("a", name, href=address, aria_current="page" if address == current else None) for name, address in _SECTIONS
    ]
    return tag("nav", links, aria_label="Sections")


def pill(state: str) -> Markup:
    """A state as a coloured word; the colour only repeats what the word says."""
    return tag("span", state.replace("_", " "), class_=f"pill {state.lower()}")


def facts(pairs: Iterable[tuple[str, Child]]) -> Markup:
    """Names and values beside each other, in as many lines as they need."""
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs], class_="facts")


def bar(done: int, total: int, *, label: str) -> Markup:
    """A progress bar that CSS can draw without inline styles."""
    shown = min(done, total) if total else 0
    return tag("progress", f"{shown} of {total}", value=shown, max=max(total, 1), aria_label=label)


def empty(message: str, *hint: Child) -> Markup:
    """The paragraph that stands where a list has nothing to show."""
    return tag("p", message, " ", join(hint), class_="empty")
