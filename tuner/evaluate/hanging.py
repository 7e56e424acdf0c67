"""After how long a configuration hangs: what takes so many times what all others took does not win."""

from __future__ import annotations

#: A configuration hangs that takes so many times as long as any that worked, but no sooner than after these seconds.
HANGING, LEAST_SCREEN_SECONDS = 100.0, 20.0


class ScreenLimit:
    """What a screened configuration may take; ``most``: seconds, which the first may, since nothing is known yet."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._longest: float | None = None

    @property
    def seconds(self) -> float:
        """After which the next one hangs."""
        if self._longest is None:
            return self._most
        return min(self._most, max(LEAST_SCREEN_SECONDS, HANGING * self._longest))

    def note(self, seconds: float) -> None:
        """One worked that was checked and timed in so many."""
        self._longest = max(self._longest or 0.0, seconds)
