"""A function on its way through the GPU stage, and what the steps tell each other besides."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..hardware import threads_of
from ..ir.core import Function
from ..launch_recipe import Guard, LaunchRecipe
from ..options import Schedule
from ..target import Target
from ..tile.memory import GridWait
from .attempts import AttemptLimits
from .memory.scratch import GpuFunction
from .streams.descriptors import Descriptors
from .streams.plan import Stream


@dataclass
class GpuWork:
    """``function`` is what the next step takes; steps change or replace it.

    ``producer_warps``: those that were added to copy. ``persistent``: programs walk over tiles. ``limits``: what may be
    made use of. ``spared_waits``: some were, at the cost of shared memory.
    ``plain``: the function without block accesses, for those that have no use of them;
    ``single``: the function for one tile, where it was made persistent without being asked. ``streams`` and the
    ``descriptors`` of their boxes are found before they are expanded. ``registers``: about how many a thread has in a
    loop of several products that is fed from rings, else 0. ``placed``: the function once its shared memory has places.
    """

    function: Function
    target: Target
    schedule: Schedule
    denied: frozenset[Guard]
    limits: AttemptLimits
    plain: Function = field(init=False)
    single: Function | None = None
    descriptors: Descriptors = field(init=False)
    placed: GpuFunction = field(init=False)
    streams: list[Stream] = field(default_factory=list)
    guards: tuple[Guard, ...] = ()
    registers: int = 0
    producer_warps: int = 0
    persistent: bool = False
    spared_waits: bool = False

    @property
    def recipe(self) -> LaunchRecipe:
        """What a launch has to do, as far as it is known."""
        return LaunchRecipe(
            threads_of(self.schedule.num_warps + self.producer_warps),
            self.guards,
            tuple(self.descriptors.maps) if self.streams else (),
            self.persistent,
            cooperative=self.schedule.launch_cooperative_grid,
            programmatic=self._may_begin_early(),
        )

    def _may_begin_early(self) -> bool:
        """Whether launches overlap with the kernel before: where they are asked to, and the kernel says by itself where
        it needs that one's results. One that does not would read what is not written yet."""
        waits = any(isinstance(op, GridWait) for op in self.function.walk())
        return self.schedule.launch_pdl and waits and "griddepcontrol" in self.target.features

    @property
    def slots(self) -> int:
        """Of the longest ring; 0 without streams."""
        return max((stream.slots for stream in self.streams), default=0)
