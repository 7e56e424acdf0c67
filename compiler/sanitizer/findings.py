"""What the sanitizer reports: one finding a place, with how often it was seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from ..errors import Location
from ..printable import blanks


class FindingKind(StrEnum):
    """What is wrong."""

    READ_OUTSIDE = "out-of-bounds read"
    WRITE_OUTSIDE = "out-of-bounds write"
    NEVER_WRITTEN = "use of never-written memory"
    MASKED_OFF = "use of masked-off values"
    RACE = "data race"
    ASSERTION = "false assertion"


HINTS = {
    FindingKind.READ_OUTSIDE: "mask the elements that the array does not have",
    FindingKind.WRITE_OUTSIDE: "mask the elements that the array does not have",
    FindingKind.NEVER_WRITTEN: "fill the array before the launch, or mask what no launch has written",
    FindingKind.MASKED_OFF: "give the load other=...",
    FindingKind.RACE: "give every program elements of its own, or use atomics",
    FindingKind.ASSERTION: "",
}


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """A line of a kernel, with its text if it can be read."""

    location: Location | None
    line: str = ""

    def __str__(self) -> str:
        return str(self.location) if self.location else "an unknown place"


@dataclass(slots=True)
class Finding:
    """One mistake at one place.

    ``program`` and ``index`` (within the tile, empty for a scalar) are those of the first element seen. ``array`` is
    the parameter's name, "" where there is none. ``other``: the second place of a race, or where a value that nobody
    may use comes from. ``count``: elements, over all programs and launches.
    """

    kind: FindingKind
    kernel: str
    place: SourcePlace
    array: str
    program: tuple[int, int, int]
    index: tuple[int, ...]
    message: str
    other: SourcePlace | None = None
    count: int = 0

    def to_json(self) -> dict[str, object]:
        """Plain data: places as file, line and column (from 1)."""
        made: dict[str, object] = {
            "kind": str(self.kind),
            "kernel": self.kernel,
            **_place_json(self.place),
            "array": self.array,
            "program": list(self.program),
            "index": list(self.index),
            "message": self.message,
            "count": self.count,
        }
        if self.other is not None:
            made["other"] = _place_json(self.other)
        return made

    def __str__(self) -> str:
        elements = "1 element" if self.count == 1 else f"{self.count} elements"
        lines = [f"{self.kind} in {self.kernel}: {self.message}", f"  at {self.place}, {elements}", *_shown(self.place)]
        if self.other is not None and self.other != self.place:
            lines += [f"  and {self.other}", *_shown(self.other)]
        hint = HINTS[self.kind]
        return "\n".join([*lines, f"  hint: {hint}"] if hint else lines)


def _place_json(place: SourcePlace) -> dict[str, object]:
    where = place.location
    if where is None:
        return {"file": "", "line": 0, "column": 0, "text": ""}
    return {"file": where.file, "line": where.line, "column": where.column + 1, "text": place.line.strip()}


def _shown(place: SourcePlace) -> list[str]:
    if place.location is None or not place.line:
        return []
    indent = len(place.line) - len(place.line.lstrip())
    return [f"    {place.line.strip()}", "    " + blanks(place.line[indent : place.location.column]) + "^"]


@dataclass
class Report:
    """All findings so far, in the order of their first appearance, and what was looked at."""

    launches: int = 0
    programs: int = 0
    findings: list[Finding] = field(default_factory=list)
    _known: dict[tuple[object, ...], Finding] = field(default_factory=dict, repr=False)

    def add(self, finding: Finding, count: int) -> None:
        """Count ``count`` elements for the place of ``finding``, which is kept if it is the first one there."""
        ends = {finding.place.location, finding.other.location if finding.other else finding.place.location}
        known = self._known.setdefault((finding.kind, finding.kernel, finding.array, frozenset(ends)), finding)
        if known is finding:
            self.findings.append(finding)
        known.count += count

    def to_json(self) -> dict[str, object]:
        """Plain data, version 1."""
        return {
            "version": 1,
            "launches": self.launches,
            "programs": self.programs,
            "findings": [finding.to_json() for finding in self.findings],
        }
