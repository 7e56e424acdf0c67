"""Configurations of ``@autotune``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...errors import LaunchError
from ..variant.constants import constant_text
from .checks import by_name

PreHook = Callable[[dict[str, object]], object]


class Config:
    """One choice of compile-time values and schedule options for ``@autotune`` to try.

    ``kwargs``: values of the kernel's ``tl.constexpr`` parameters. ``pre_hook``: called with all arguments by name
    before every launch with this configuration. ``num_warps``, ``num_stages`` and ``maxnreg`` change the code of GPUs;
    ``num_ctas``, 1 to 16, is taken and changes nothing. None of them changes the CPU's code. Schedule options that
    Triton does not have (``persistent``) go into ``kwargs``.

    Raises:
        ArgumentMismatch: ``kwargs`` are not values by name.
        LaunchError: there is an ``ir_override``, IR of Triton's in place of the kernel.
    """

    def __init__(
        self,
        kwargs: Mapping[str, object],
        num_warps: int = 4,
        num_stages: int = 3,
        num_ctas: int = 1,
        maxnreg: int | None = None,
        pre_hook: PreHook | None = None,
        ir_override: None = None,
    ) -> None:
        if ir_override is not None:
            raise LaunchError(f"ir_override = {ir_override!r}", hint="deuteron compiles kernels from their source only")
        self.kwargs = by_name(kwargs, "what a Config sets", "give values by name: Config({'BLOCK': 64})")
        self.num_warps = num_warps
        self.num_stages = num_stages
        self.num_ctas = num_ctas
        self.maxnreg = maxnreg
        self.pre_hook = pre_hook
        self.ir_override = ir_override

    def all_kwargs(self) -> dict[str, object]:
        """What is passed to the kernel: the compile-time values and the schedule options."""
        options = {
            "num_warps": self.num_warps,
            "num_stages": self.num_stages,
            "num_ctas": self.num_ctas,
            "maxnreg": self.maxnreg,
        }
        return {**self.kwargs, **{k: v for k, v in options.items() if v is not None}}

    def identity(self) -> str:
        """A text that differs for different configurations, the same in every process."""
        items = sorted(self.all_kwargs().items())
        return ", ".join(f"{name}: {constant_text(value)}" for name, value in items)

    def __str__(self) -> str:
        return ", ".join(f"{name}: {value}" for name, value in self.all_kwargs().items())

    def __repr__(self) -> str:
        return f"Config({self})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.identity() == other.identity() and self.pre_hook is other.pre_hook

    def __hash__(self) -> int:
        return hash(self.identity())
