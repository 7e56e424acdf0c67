"""Every configuration, in the order of the space."""

from __future__ import annotations

from ..codec import Scalar
from ..space import Configuration, Space, config_key
from .base import Outcome


class ExhaustiveStrategy:
    """Walks the space in enumeration order. Needs no memory of the space, only of what was seen."""

    def __init__(self, space: Space, seed: int) -> None:
        self._remaining = space.configurations()
        self._seen: set[str] = set()

    def ask(self) -> dict[str, Scalar] | None:
        for config in self._remaining:
            key = config_key(config)
            if key not in self._seen:
                self._seen.add(key)
                return config
        return None

    def tell(self, config: Configuration, outcome: Outcome) -> None:
        self._seen.add(config_key(config))

    def reason(self, config: Configuration) -> str | None:
        """None: it has no reasons of its own."""
        return None

    def settled(self) -> str | None:
        """None: it expects nothing."""
        return None
