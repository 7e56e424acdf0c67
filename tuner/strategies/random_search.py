"""Uniformly random configurations without repetition."""

from __future__ import annotations

import random

from ..codec import Scalar
from ..space import Configuration, Space
from .base import Outcome
from .unseen import Unseen


class RandomStrategy:
    """Draws valid configurations without replacement; the baseline every other strategy has to beat."""

    def __init__(self, space: Space, seed: int) -> None:
        self._unseen = Unseen(space, random.Random(seed))

    def ask(self) -> dict[str, Scalar] | None:
        return self._unseen.draw()

    def tell(self, config: Configuration, outcome: Outcome) -> None:
        self._unseen.mark(config)

    def reason(self, config: Configuration) -> str | None:
        """None: it has no reasons of its own."""
        return None

    def settled(self) -> str | None:
        """None: it expects nothing."""
        return None
