"""What runs launches in the place of devices, while somebody asks for it: the sanitizer and other tools that look at
every access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

from ... import knobs
from ..arrays.host import host_array
from ..variant.variant import Variant


class StandIn(Protocol):
    """Runs kernels on the host."""

    def run(self, variant: Variant, grid: tuple[int, int, int], arguments: Mapping[str, Any]) -> None:
        """Run every program of ``grid``. ``arguments`` has a NumPy array or a number for every run-time parameter of
        the variant's signature; arrays are changed in place."""
        ...


class _Standing:
    """Who stands in now: launches read it when they need a new specialisation, and those of compiled kernels each
    time."""

    __slots__ = ("by",)

    def __init__(self) -> None:
        self.by: StandIn | None = None


standing = _Standing()


@contextmanager
def standing_in(stand_in: StandIn) -> Iterator[None]:
    """Let ``stand_in`` run all launches of this process inside a ``with`` block, of all threads."""
    before = standing.by
    standing.by = stand_in
    knobs.epoch.value += 1  # kernels forget what they have prepared
    try:
        yield
    finally:
        standing.by = before
        knobs.epoch.value += 1


def run_on_host(
    stand_in: StandIn, variant: Variant, grid: tuple[int, int, int], arguments: Mapping[str, object]
) -> None:
    """Run a launch whose ``arguments`` are those of the signature, as the user gave them."""
    with ExitStack() as stack:
        passed = {
            name: stack.enter_context(host_array(arguments[name])) if kind.pointer else arguments[name]
            for name, kind in variant.signature.items()
        }
        stand_in.run(variant, grid, passed)
