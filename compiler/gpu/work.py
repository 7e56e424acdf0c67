"""A function on its way through the GPU stage, and the facts that steps leave for later ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from ..errors import IRError
from ..hardware import threads_of
from ..ir.core import Function
from ..launch_recipe import Guard, LaunchRecipe
from ..options import Schedule
from ..target import Target
from ..tile.memory import GridWait
from .attempts import AttemptLimits
from .memory.scratch import GpuFunction
from .streams.plan import StreamPlan


@dataclass
class GpuWork:
    """One attempt. What was asked for stays as it is, steps change or replace ``function``, and below it are the facts
    that they leave; which step leaves and which needs which one is in ``PIPELINE`` (:mod:`.pipeline`)."""

    #: The function as the stage got it.
    original: Final[Function]
    target: Final[Target]
    #: Its warps are those that the CTA has, but for a producer's.
    schedule: Final[Schedule]
    #: Guards that the launch's arguments break.
    denied: Final[frozenset[Guard]]
    #: What this attempt may make use of.
    limits: Final[AttemptLimits]

    #: What the next step takes.
    function: Function = field(init=False)

    #: What has to hold of a launch for the code to be right, or to pay.
    guards: tuple[Guard, ...] = ()
    #: Whether programs walk over tiles.
    persistent: bool = False
    #: The function for one tile, where it was made persistent without being asked.
    single: Function | None = None
    #: The loops that are fed from rings; None without any.
    plan: StreamPlan | None = None
    #: Warps that were added to copy.
    producer_warps: int = 0
    #: Whether waits for products are spared at the cost of shared memory.
    spared_waits: bool = False

    def __post_init__(self) -> None:
        self.begin_again()

    def begin_again(self) -> None:
        """Let ``function`` be what it was before the first step."""
        self.function = self.original.clone()
        self.function.num_warps = self.schedule.num_warps

    def require(self, guards: Iterable[Guard]) -> None:
        """Add to the guards."""
        self.guards = tuple(dict.fromkeys((*self.guards, *guards)))

    @property
    def recipe(self) -> LaunchRecipe:
        """What a launch has to do, as far as it is known."""
        return LaunchRecipe(
            threads_of(self.schedule.num_warps + self.producer_warps),
            self.guards,
            tuple(self.plan.descriptors.maps) if self.plan else (),
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
    def placed(self) -> GpuFunction:
        """The function, now that what is in shared memory has its place; IRError before that."""
        if not isinstance(self.function, GpuFunction):
            raise IRError(f"nothing of {self.function.name} has a place in shared memory yet")
        return self.function
