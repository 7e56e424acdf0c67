"""What kernels of cooperative reductions call that PyTorch builds on Triton's insides, in the language instead."""

from __future__ import annotations

from typing import Any

from deuteron import jit, next_power_of_2


@jit
def if_mask(mask, value):  # type: ignore[no-untyped-def]
    """``value`` where there is a mask, else None: ``other`` belongs to a mask."""
    if mask is None:
        return None
    return value


def replace_helpers(module: Any) -> None:
    """Put these functions into ``torch._inductor.runtime.triton_helpers``."""
    module.constexpr_next_power_of_2 = next_power_of_2
    module.if_mask = if_mask
