"""What runs launches in the place of devices, while somebody asks for it: the sanitizer and other tools that look at
every access."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Protocol

from ...epoch import Switch
from ..arrays.host import host_array
from ..variant.variant import Variant


class StandIn(Protocol):
    """Runs kernels on the host."""

    def run(self, variant: Variant, grid: tuple[int, int, int], arguments: Mapping[str, Any]) -> None:
        """Run every program of ``grid``. ``arguments`` has a NumPy array or a number for every run-time parameter of
        the variant's signature; arrays are changed in place."""
        ...


#: Who stands in for the devices now: launches read it when they need a new specialisation, and those of compiled
#: kernels each time.
standing: Switch[StandIn | None] = Switch(None)


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
