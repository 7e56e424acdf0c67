"""One HTML page with everything in it: pictures, table and roofline of a profile or of the difference of two.

The page's own files are in ``../page/``: they are put into it here, and nothing is loaded from anywhere. Scripts and
styles are allowed by their hashes, so text of a profile is never run, whatever it says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.resources import files

from ...self_contained import page
from ..columns import Column
from ..frames import Number, Numbers
from ..names import printable
from .exports import Export
from .roofline import roofline

#: In the order in which they need each other.
SCRIPTS = ("tree.js", "colors.js", "flame.js", "table.js", "roofline.js", "main.js")


def html_text(export: Export) -> str:
    """The page for an export."""
    folder = files("deuteron.profiler.viewer") / "page"
    style = (folder / "page.css").read_text(encoding="utf-8")
    # One strict script: each file says so for itself, and for tests that load it alone.
    script = "\n".join((folder / name).read_text(encoding="utf-8") for name in SCRIPTS)
    template = (folder / "page.html").read_text(encoding="utf-8")
    return page(template, title=printable(export.title), style=style, script=script, data=profile_data(export))


def profile_data(export: Export) -> dict[str, object]:
    """What the page's scripts know of the profile; ``page/tree.js`` says what it means."""
    view = export.view
    places: dict[str, int] = {}
    rows = [places.setdefault(name, len(places)) for name in view.names]
    metrics = []
    for at, column in enumerate(view.columns):
        metric = {"label": column.label, "unit": column.unit, "sums": column.adds_up, **_numbers(column)}
        if view.is_difference:
            metric |= {"left": _numbers(view.left[at]), "right": _numbers(view.right[at])}
        metrics.append(metric)
    return {
        "titles": [printable(title) for title in export.titles],
        "difference": view.is_difference,
        "names": [printable(name) for name in places],
        "name": rows,
        "parent": view.parents,
        "side": [int(side) for side in view.sides],
        "metrics": metrics,
        "roofline": roofline(view),
    }


def _numbers(column: Column) -> dict[str, object]:
    if column.own is None or column.total is None:
        return {"value": _short(column.values)}
    return {"own": _short(column.own), "total": _short(column.total)}


def _short(numbers: Numbers) -> Sequence[Number | None]:
    """The numbers as the page shows them: nine digits, null for what is not finite."""
    return [_nine_digits(number) if math.isfinite(number) else None for number in numbers]


def _nine_digits(number: Number) -> Number:
    if isinstance(number, int):
        return number
    rounded = float(f"{number:.9g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
