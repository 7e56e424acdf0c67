"""One HTML page about recorded accesses: pictures of arrays, steps through programs, and numbers.

The page's own files are in ``page/``; its looks are those of the viewer's page. Nothing is loaded from anywhere.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import PurePath

import numpy as np

from ..self_contained import page
from .analysis import ArrayNumbers, OperationNumbers, array_numbers, operation_numbers
from .encode import Encoded, encoded
from .record import AccessRecord, RecordedArray, RecordedLaunch, RecordedOperation

#: Characters of JSON that accesses may take, and tables of launches: pages stay under 3 MB. Accesses that do not fit
#: are in the numbers only.
MOST_CHARACTERS = 2_400_000
MOST_OF_TABLES = 400_000


def accesses_page(record: AccessRecord, title: str, notes: tuple[str, ...] = ()) -> str:
    """The text of the page. ``notes`` are said on it, after those of the record itself."""
    own, viewer = files("deuteron.profiler.accesses") / "page", files("deuteron.profiler.viewer") / "page"
    style = "\n".join(text.read_text(encoding="utf-8") for text in (viewer / "page.css", own / "accesses.css"))
    return page(
        (own / "accesses.html").read_text(encoding="utf-8"),
        title=title,
        style=style,
        script="\n".join((own / name).read_text(encoding="utf-8") for name in ("pictures.js", "accesses.js")),
        data=page_data(record, notes),
    )


def page_data(
    record: AccessRecord,
    notes: tuple[str, ...] = (),
    most_characters: int = MOST_CHARACTERS,
    most_of_tables: int = MOST_OF_TABLES,
) -> dict[str, object]:
    """What the page's script knows; ``encode.py`` says how an access is written."""
    tables, budget = _Budget(most_of_tables), _Budget(most_characters)
    shown: list[tuple[RecordedLaunch, dict[str, object]]] = []
    for launch in record.launches:
        table = _launch(launch)
        if not tables.take(table) and shown:
            break
        shown.append((launch, table))
    launches = []
    for launch, table in shown:
        accesses = (encoded(launch, access) for access in launch.accesses)
        launches.append({**table, "accesses": [access for access in accesses if budget.take(access)]})
    said = [*record.notes(), *notes]
    if len(shown) < len(record.launches):
        said.append(
            f"the first {len(shown)} of {len(record.launches)} recorded launches are shown, as many as a page has room "
            "for; deuteron view --kernel and --launch choose others"
        )
    if budget.refused:
        said.append(
            f"pictures and steps show the first {budget.taken} of {budget.taken + budget.refused} recorded accesses, "
            "as many as a page has room for; the tables count all of them"
        )
    return {"launches": launches, "notes": said}


@dataclass
class _Budget:
    """Room for JSON: after the first part that does not fit none is taken, so that what is shown has no holes."""

    left: int
    taken: int = 0
    refused: int = 0

    def take(self, part: Encoded | dict[str, object]) -> bool:
        size = len(json.dumps(part, separators=(",", ":"))) + 1
        if self.refused or size > self.left:
            self.refused += 1
            return False
        self.left -= size
        self.taken += 1
        return True


def _launch(launch: RecordedLaunch) -> dict[str, object]:
    """All but the accesses."""
    return {
        "kernel": launch.kernel,
        "number": launch.number,
        "grid": launch.grid,
        "arrays": [_array(*pair) for pair in zip(launch.arrays, array_numbers(launch), strict=True)],
        "operations": [_operation(*pair) for pair in zip(launch.operations, operation_numbers(launch), strict=True)],
        "outside": first_outside(launch),
    }


def _array(array: RecordedArray, numbers: ArrayNumbers) -> dict[str, object]:
    return {**asdict(array), "elements": array.elements, "numbers": asdict(numbers)}


def _operation(operation: RecordedOperation, numbers: OperationNumbers) -> dict[str, object]:
    at = operation.location
    return {
        "kind": operation.kind,
        "file": PurePath(at.file).name if at else "",
        "line": at.line if at else 0,
        "text": operation.text,
        "shape": operation.shape,
        "dtype": operation.dtype,
        "size": operation.size,
        "numbers": {**asdict(numbers), "moved": numbers.traffic.moved},
    }


def first_outside(launch: RecordedLaunch) -> list[dict[str, object]]:
    """For each operation that leaves its arrays: how many elements do, and the first of them.

    ``element`` counts elements of the operation's size from the array's start, None where the pointer has no array.
    """
    found: dict[int, dict[str, object]] = {}
    for access in launch.accesses:
        count = int(access.outside.sum())
        if not count:
            continue
        known = found.get(access.operation)
        if known is not None:
            known["count"] = int(str(known["count"])) + count
            continue
        operation = launch.operations[access.operation]
        lane = int(np.flatnonzero(access.outside)[0])
        array = launch.arrays[access.array] if access.array >= 0 else None
        distance = (access.addresses[lane : lane + 1] - np.uint64(array.start if array else 0)).view(np.int64)
        found[access.operation] = {
            "operation": access.operation,
            "count": count,
            "program": access.program,
            "index": [int(i) for i in np.unravel_index(lane, operation.shape)] if operation.shape else [],
            "array": array.name if array else "",
            "element": int(distance[0]) // operation.size if array else None,
            "address": hex(int(access.addresses[lane])),
        }
    return list(found.values())
