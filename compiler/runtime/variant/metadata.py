"""What is known about a compiled variant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ...launch_recipe import LaunchRecipe


@dataclass(frozen=True, slots=True)
class KernelMetadata:
    """Facts about one compiled variant; None where the target or its toolchain does not tell.

    ``recipe`` says what a launch has to do. ``num_slots``: slots of the longest ring that feeds products, of
    ``num_stages`` or what a loop's author says (:class:`~...options.Schedule`); 0 without rings. ``registers`` is per
    thread, ``spills`` in bytes per thread, ``stack_bytes`` per thread, ``shared_bytes`` per block. ``stage_ms``:
    what each stage of the compilation took that ran, by name, in milliseconds; ``gpu_steps``: the same of the steps of
    the GPU stage. A variant from the cache keeps those of the run that made it, and ``cached`` is True.
    """

    name: str
    target: str
    hash: str
    num_warps: int
    num_stages: int
    num_ctas: int
    recipe: LaunchRecipe
    num_slots: int | None = None
    maxnreg: int | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    spills: int | None = None
    stack_bytes: int | None = None
    stage_ms: Mapping[str, float] = field(default_factory=dict, compare=False)
    gpu_steps: Mapping[str, float] = field(default_factory=dict, compare=False)
    cached: bool = False

    @property
    def num_threads(self) -> int:
        """Threads of one block on a GPU, helper warps included."""
        return self.recipe.threads

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block, Triton's name of it; 0 where there is none."""
        return self.shared_bytes or 0

    def to_json(self) -> dict[str, object]:
        """A JSON object; :meth:`from_json` reads it back."""
        return asdict(self) | {"recipe": self.recipe.to_json()}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> KernelMetadata:
        """Read what :meth:`to_json` wrote; fields that this version does not know are dropped."""
        known = {f.name for f in fields(KernelMetadata)}
        values = {k: v for k, v in data.items() if k in known}
        return KernelMetadata(**values | {"recipe": LaunchRecipe.from_json(data["recipe"])})
