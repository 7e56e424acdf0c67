"""What is assumed of a kernel that comes without types and values, block sizes so that its tiles stay small."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deuteron.compiler.source.assume import Assumptions
    from deuteron.compiler.source.kernel import KernelSource

#: Elements of a tile: 64 for each thread of four warps. Of tiles with far more, ptxas takes minutes.
_MOST_ELEMENTS = 8192


def assume_for(
    source: KernelSource,
    target: str,
    *,
    signature: Mapping[str, str],
    constexprs: Mapping[str, object],
    schedule: Mapping[str, object],
    dtype: str,
) -> Assumptions:
    """What :func:`deuteron.compiler.source.assume.assume` has, with the block sizes that it guessed halved until no
    tile has more than 8,192 elements, as far as that depends on them. Raises as it does."""
    from deuteron.compiler.source.assume import assume  # lazy: help starts without the compiler

    found = assume(source, signature=signature, constexprs=constexprs, schedule=schedule, dtype=dtype)
    blocks = _guessed_blocks(source, found)
    excess = _excess(source, target, found) if blocks else 0
    while excess:
        smaller = [{**blocks, name: size // 2} for name, size in blocks.items() if size > 1]
        left = [_excess(source, target, _with(found, sizes)) for sizes in smaller]
        if not smaller or (excess < math.inf and min(left) >= excess):
            break
        # Where none compiles yet, because tiles have limits, the largest is the one to become smaller.
        excess, blocks = min(zip(left, smaller, strict=True), key=lambda tried: (tried[0], max(tried[1].values())))
    return found if excess == math.inf else _with(found, blocks)


def _guessed_blocks(source: KernelSource, found: Assumptions) -> dict[str, int]:
    """The block sizes that neither the caller nor the kernel's configurations say."""
    from deuteron.compiler.source.assume import first_literal_config, is_block  # lazy: as above
    from deuteron.compiler.source.usage import usage_of  # lazy: as above

    usage, config = usage_of(source), first_literal_config(source)
    guessed = (a.name for a in source.arguments if a.name in found.assumed and a.name not in config)
    named = {argument.name: argument for argument in source.arguments}
    sizes = {name: found.constexprs.get(name) for name in guessed if is_block(named[name], usage)}
    return {name: size for name, size in sizes.items() if type(size) is int}


def _with(found: Assumptions, blocks: Mapping[str, int]) -> Assumptions:
    texts = {name: repr(size) for name, size in blocks.items()}
    return replace(found, constexprs={**found.constexprs, **blocks}, assumed={**found.assumed, **texts})


def _excess(source: KernelSource, target: str, found: Assumptions) -> float:
    """Elements of all tiles that are too large, infinite for what does not compile."""
    from deuteron.compiler.errors import DeuteronError  # lazy: as above
    from deuteron.compiler.runtime.variant.pipeline import lowered  # lazy: as above
    from deuteron.compiler.runtime.variant.variant import make_variant  # lazy: as above

    try:
        made = lowered(make_variant(source, found.signature, found.constexprs, target, found.schedule))
    except DeuteronError:
        return math.inf
    sizes = (math.prod(result.type.shape) for op in made.walk() for result in op.results)
    return sum(size for size in sizes if size > _MOST_ELEMENTS)
