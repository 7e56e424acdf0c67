"""The tensors that configurations of a problem are checked with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deuteron.compiler.runtime.arrays.dtypes import canonical_dtype

from ..workloads import Problem
from ..workloads.inputs import initial_contents, poisoned
from .margins import Margins
from .untouched import Untouched

if TYPE_CHECKING:
    import numpy as np

    from deuteron.compiler.runtime.device import Device


class Tensors:
    """All tensors of a problem in a device's memory, each between margins: inputs from a seed, outputs as
    :meth:`refresh` makes them."""

    def __init__(self, problem: Problem, device: Device, seed: int) -> None:
        self._problem = problem
        self._initial = initial_contents(problem, seed)
        self._margins = {
            name: Margins(device, name, contents.shape, canonical_dtype(contents.row.dtype))
            for name, contents in self._initial.items()
        }
        #: By name, as launches take them.
        self.arrays = {name: around.array for name, around in self._margins.items()}
        self._inputs = {
            tensor.name: Untouched(device, self._margins[tensor.name].bits, _bits(self._initial[tensor.name].row))
            for tensor in problem.spec.tensors
            if tensor.role == "input" and self.arrays[tensor.name].nbytes
        }
        for untouched in self._inputs.values():
            untouched.restore()

    def refresh(self, turn: int = 0) -> None:
        """Make what a kernel writes as it is before a launch; ``turn``: with which poison."""
        for tensor in self._problem.spec.tensors:
            if tensor.role == "output":
                poisoned(self._problem, tensor, turn).restore(self.arrays[tensor.name])
            elif tensor.role == "inout":
                self._initial[tensor.name].restore(self.arrays[tensor.name])

    def widened(self, name: str) -> np.ndarray:
        """What a tensor that is no output holds before a launch, in float64; a new array."""
        return self._initial[name].widened()

    def damage(self) -> str | None:
        """What a launch has written where it must not, in words: around the tensors, and into inputs. All is as before
        then. Waits for the device."""
        found = [around.damage() for around in self._margins.values()]
        for name, untouched in self._inputs.items():
            changed = untouched.changed()
            if changed:
                untouched.restore()
                found.append(f"changed {changed} elements of the input {name!r}")
        return "; ".join(each for each in found if each is not None) or None

    def results(self) -> dict[str, np.ndarray]:
        """All tensors but the inputs by name, copied to the host; waits for the device."""
        names = (tensor.name for tensor in self._problem.spec.tensors if tensor.role != "input")
        return {name: self.arrays[name].to_numpy() for name in names}


def _bits(row: np.ndarray) -> np.ndarray:
    return row.view(f"u{row.itemsize}")
