"""How much it helped to start from earlier searches."""

from __future__ import annotations

from typing import ClassVar

from ..codec import Document, Finite


class StartReport(Document, frozen=True):
    """What became of a search that started from others.

    ``sources``: these, in words. ``tried``: configurations that were known and tried first; ``share``: the time of the
    best configuration over that of the best of these, 1 where nothing better was found, None where none of them worked.
    ``agreement``: the rank correlation of the times that were predicted and those that were measured, None where there
    was no prediction. ``screened``: configurations tried; ``budget``: how many there might have been, None without a
    limit. ``ended_early``: whether the search ended because what was predicted was found and nothing better turned up.
    """

    noun: ClassVar[str] = "start report"

    sources: tuple[str, ...]
    tried: int
    screened: int
    budget: int | None = None
    share: Finite | None = None
    agreement: Finite | None = None
    ended_early: bool = False

    @property
    def text(self) -> str:
        """One line: what it started from, and what that was worth."""
        parts = [f"started from {', '.join(self.sources)}"]
        if self.share is not None:
            parts.append(f"the best of {self.tried} known ones reached {self.share:.1%} of the best found")
        if self.agreement is not None:
            parts.append(f"times were ranked as predicted to {self.agreement:.2f}")
        of_budget = "" if self.budget is None else f" of {self.budget}"
        parts.append(f"{'ended after' if self.ended_early else 'took'} {self.screened}{of_budget} configurations")
        return "; ".join(parts)
