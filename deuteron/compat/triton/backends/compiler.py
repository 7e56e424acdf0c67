"""What kernels are compiled for, as Triton says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deuteron.compiler import Schedule, Target
from deuteron.compiler.errors import TargetError
from deuteron.compiler.runtime.variant.toolchain import toolchain
from deuteron.compiler.runtime.variant.variant import make_schedule


@dataclass(frozen=True)
class GPUTarget:
    """What Triton calls a target: backend, compute capability times ten, threads per warp."""

    backend: str
    arch: int | str
    warp_size: int


def target_of(target: Target) -> GPUTarget:
    """Our target under Triton's names; the CPU has the architecture 0 and warps of one thread."""
    return GPUTarget(target.kind, target.capability, 32 if target.kind == "cuda" else 1)


def own_target(target: GPUTarget) -> Target:
    """Triton's target as ours; ``arch`` may also be a text such as ``sm_90a``.

    Raises:
        TargetError: it is neither a CPU nor a GPU of NVIDIA's that deuteron compiles for.
    """
    if target.backend == "cpu":
        return Target.parse("cpu")
    if target.backend != "cuda":
        raise TargetError(f"deuteron has no backend {target.backend!r}", hint="use cuda or cpu")
    return Target.of_architecture(str(target.arch))


@dataclass(frozen=True)
class BaseBackend:
    """What programs ask of a backend of Triton's: the identity of what compiles, and what options mean."""

    target: Target

    def hash(self) -> str:
        """A text that changes with the compiler, the assembler and the target."""
        return "-".join([str(self.target), *toolchain(self.target).values()])

    def parse_options(self, options: Mapping[str, Any]) -> Schedule:
        """The schedule that these options give; raises SignatureError for unknown ones."""
        return make_schedule(options)
