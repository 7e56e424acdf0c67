"""Drawing configurations that were not drawn before."""

from __future__ import annotations

import itertools
import random

from ..codec import Scalar
from ..space import Configuration, Space, config_key

LISTED = 100_000
REPEATS = 10_000


class Unseen:
    """The configurations of a space that nobody has seen yet, in one random order.

    Spaces of up to :data:`LISTED` configurations are shuffled once, so that draws are uniform and end when the space
    does, and so that a resumed search goes on in the order of the interrupted one. Larger spaces are sampled;
    they count as exhausted after :data:`REPEATS` samples in a row that were seen before.
    """

    def __init__(self, space: Space, rng: random.Random) -> None:
        self._samples = space.samples(rng)
        self._seen: set[str] = set()
        self._pile: list[dict[str, Scalar]] | None = None
        if space.count(LISTED) is not None:
            self._pile = list(space.configurations())
            rng.shuffle(self._pile)

    def mark(self, config: Configuration) -> None:
        """Count ``config`` as seen: it will not be drawn."""
        self._seen.add(config_key(config))

    def __contains__(self, config: Configuration) -> bool:
        return config_key(config) not in self._seen

    def draw(self) -> dict[str, Scalar] | None:
        """A configuration nobody has seen, now marked as seen; None when there is none."""
        if self._pile is not None:
            while self._pile:
                config = self._pile.pop()
                if config in self:
                    self.mark(config)
                    return config
            return None
        for config in itertools.islice(self._samples, REPEATS):
            if config in self:
                self.mark(config)
                return config
        return None
