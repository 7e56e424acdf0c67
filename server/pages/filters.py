"""Forms that narrow a list, and links to the rest of it. They work without scripts: a filter is part of the address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query

from .html import Markup, tag

#: Text that a list is narrowed by.
NamePart = Annotated[str, Query(max_length=200)]


def filter_form(address: str, *fields: Markup) -> Markup:
    """Fields above a list; ``address`` alone shows all of it."""
    return tag(
        "form",
        fields,
        tag("button", "Filter", type="submit"),
        tag("a", "Show all", href=address, class_="button"),
        action=address,
        method="get",
        role="search",
        class_="filters",
    )


def text_field(name: str, label: str, value: str) -> Markup:
    """A part of a name to look for."""
    return tag("label", label, " ", tag("input", name=name, value=value, type="search", maxlength=200))


def choice_field(name: str, label: str, value: str, choices: Sequence[str], *, anything: str | None = "any") -> Markup:
    """One of some words; ``anything``: what no choice at all is called, None where there has to be one."""
    options = [] if anything is None else [tag("option", anything, value="", selected=value == "")]
    options += [tag("option", choice, value=choice, selected=value == choice) for choice in choices]
    return tag("label", label, " ", tag("select", options, name=name))


def page_links(address: str, query: Mapping[str, str | int], links: Mapping[str, Mapping[str, str | int]]) -> Markup:
    """Links by their text to other pages of a list; each changes some of the ``query``. Empty parts are left out."""
    shown = []
    for text, change in links.items():
        parts = {name: value for name, value in {**query, **change}.items() if value != ""}
        shown.append(tag("a", text, href=f"{address}?{urlencode(parts)}" if parts else address, class_="button"))
    return tag("nav", shown, aria_label="Pages", class_="pages")
