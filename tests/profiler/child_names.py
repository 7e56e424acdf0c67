"""What is below a node of a profile's tree: names, and launches with their times."""

from __future__ import annotations


def names(node: dict) -> list[str]:
    return [child["frame"]["name"] for child in node["children"]]


def times(node: dict, outer: tuple[str, ...] = ()) -> dict[tuple[str, ...], tuple[int, int]]:
    """Launches and nanoseconds by path."""
    found = {}
    for child in node["children"]:
        path, metrics = (*outer, child["frame"]["name"]), child["metrics"]
        if metrics.get("count"):
            found[path] = metrics["count"], metrics["time (ns)"]
        found |= times(child, path)
    return found
