"""What a job says of the shapes that have no result."""

from __future__ import annotations

from collections.abc import Sequence

from .errors import JobError
from .records import ConfigRecord

# Named one by one up to here: shapes often fail for one reason.
_MOST_NAMED = 8


class ShapesFailed(JobError):
    """Some shapes of a job have no result; the message says which and why. ``records``: those of the others."""

    def __init__(self, failed: Sequence[JobError], records: Sequence[ConfigRecord], shapes: int) -> None:
        lines = [error.message for error in failed[:_MOST_NAMED]]
        if len(failed) > len(lines):
            lines.append(f"and {len(failed) - len(lines)} more")
        text = f"{len(failed)} of {shapes} shapes have no result:\n" + "\n".join(lines)
        super().__init__(text, hint=failed[0].hint)
        self.records = tuple(records)
