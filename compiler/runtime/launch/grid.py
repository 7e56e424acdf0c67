"""Launch grids: one to three sizes, or a function of the launch's arguments that gives them.

Triton looks at three, so further sizes of 1 are taken.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

from ...errors import LaunchError

Grid = int | Sequence[int]
GridFunction = Callable[[Mapping[str, object]], Grid]

#: Largest sizes of a CUDA grid (CUDA C++ Programming Guide, table of technical specifications); kept on the CPU too.
_LIMITS = (2**31 - 1, 65535, 65535)
#: Python compares ints of one digit faster.
_ONE_DIGIT = 2**30 - 1


def grid_of(grid: object) -> tuple[int, int, int]:
    """Three sizes from a grid as users write it.

    Raises:
        LaunchError: not 1 to 3 whole numbers, or a number that is negative or too large.
    """
    if type(grid) is tuple:  # of ints, as nearly always: in 0.15 us, by the checks of each size 1.2
        count = len(grid)
        if count == 1:
            (x,) = grid
            if type(x) is int and x >= 0 and x <= _ONE_DIGIT:
                return x, 1, 1
        elif count == 2:
            x, y = grid
            if type(x) is int and x >= 0 and x <= _ONE_DIGIT and type(y) is int and 0 <= y <= 65535:
                return x, y, 1
        elif count == 3:
            x, y, z = grid
            if type(x) is type(y) is type(z) is int and 0 <= x <= _ONE_DIGIT and 0 <= y <= 65535 >= z >= 0:
                return x, y, z
    elif isinstance(grid, int):
        grid = (grid,)
    return _checked(grid)


def _checked(grid: object) -> tuple[int, int, int]:
    try:
        sizes = [operator.index(n) for n in grid]  # type: ignore[attr-defined]
    except TypeError:
        raise LaunchError(
            f"the grid {grid!r} is not made of whole numbers",
            hint="write grid = (n,), with cdiv(n, BLOCK) where n is not a multiple of BLOCK",
        ) from None
    while len(sizes) > 3 and sizes[-1] == 1:
        sizes.pop()
    if not 1 <= len(sizes) <= 3:
        raise LaunchError(f"the grid {tuple(sizes)} has {len(sizes)} dimensions", hint="use 1 to 3")
    for axis, (size, limit) in enumerate(zip(sizes, _LIMITS, strict=False)):
        if not 0 <= size <= limit:
            raise LaunchError(
                f"the grid {tuple(sizes)} has size {size} along axis {axis}",
                hint=f"sizes there go from 0 to {limit}",
            )
    sizes += [1] * (3 - len(sizes))
    return sizes[0], sizes[1], sizes[2]
