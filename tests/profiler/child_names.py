"""The names below a node of a profile's tree."""

from __future__ import annotations


def names(node: dict) -> list[str]:
    return [child["frame"]["name"] for child in node["children"]]
