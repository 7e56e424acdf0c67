"""HTML as values: a tag is a function call, and text is escaped because there is no way not to.

>>> str(tag("a", "x < y", href="/?q=1&r=2"))
'<a href="/?q=1&amp;r=2">x &lt; y</a>'
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TypeAlias

_VOID = {"meta", "link", "input", "br"}


class Markup(str):
    """Text that is HTML already: made by :func:`tag` and :func:`join` only."""

    __slots__ = ()


Child: TypeAlias = "str | int | float | Markup | None | Iterable[Child]"


def join(children: Child) -> Markup:
    """Children one after the other; plain text is escaped, None is nothing."""
    if children is None:
        return Markup("")
    if isinstance(children, Markup):
        return children
    if isinstance(children, str | int | float):
        return Markup(escape(str(children)))
    return Markup("".join(join(child) for child in children))


def tag(name: str, /, *children: Child, **attributes: str | int | bool | None) -> Markup:
    """An element. ``class_`` and ``for_`` lose their underscore, other underscores become hyphens; an
    attribute that is None or False is left out, True has no value."""
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        shown = key.rstrip("_").replace("_", "-")
        parts.append(shown if value is True else f'{shown}="{escape(str(value))}"')
    opening = f"<{' '.join(parts)}>"
    return Markup(opening if name in _VOID else f"{opening}{join(children)}</{name}>")


def table(headings: list[str], rows: Iterable[Child], *, caption: str, **attributes: str) -> Markup:
    """A table whose caption is read by screen readers and hidden from view."""
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption, class_="hidden"),
            tag("thead", tag("tr", [tag("th", heading, scope="col") for heading in headings])),
            tag("tbody", rows, **attributes),
        ),
        class_="scroll",
    )
