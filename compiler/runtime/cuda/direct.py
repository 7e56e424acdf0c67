"""The Python of a GPU launch, made for one loaded kernel.

A launch of a few microseconds has no time for loops over its arguments or for methods that call each other: going
through five of them took 1.8 us beside the driver, the same steps written out take 0.7. So they are written out, once
per kernel, as the text of a function. Into the text go names and numbers that this package makes and no others; what
belongs to the kernel is in the function's scope.
"""

from __future__ import annotations

import builtins
import functools
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...launch_recipe import PROGRAMS, Guard, LaunchRecipe
from ..launch.host_code import condition
from ..launch.loaded import Direct

#: Grid sizes and the stream as the texts name them, before the kernel's arguments.
_CONFIGURATION = ("x", "y", "z", "stream")

_GRID = """\
    if grid.__class__ is tuple and len(grid) == 1 and (x := grid[0]).__class__ is int and x > 0 and x < 0x40000000:
        y = z = 1
    else:
        x, y, z = grid_of(grid)
        if not (x and y and z):
            return kernel
"""
#: The number of programs for each SM, rounded up.
_PROGRAMS = "(x * y * z + sms - 1) // sms"
_START = """\
    code = start({passed})
    if code:
        again(code, (x, y, z), {passed})
    return kernel
"""


@dataclass(frozen=True)
class Passing:
    """What the driver is passed of a launch: ``lines`` come before, ``values`` are texts: three grid sizes, the stream,
    the kernel's parameters."""

    lines: Sequence[str]
    values: Sequence[str]


def passing(
    recipe: LaunchRecipe, needed: Sequence[str], encoded: Mapping[str, str], places: Mapping[str, str]
) -> Passing:
    """Of a kernel with this recipe. ``places``: the text of each argument of the signature, in order; those in
    ``encoded`` are floats, and there is the function that gives their bits; descriptors depend on those in
    ``needed``."""
    lines = []
    values = [f"{encoded[name]}(float({text}))" if name in encoded else text for name, text in places.items()]
    sizes = ["x", "y", "z"]
    if recipe.cluster > 1:
        lines.append("    if x % cluster:\n        refuse_grid((x, y, z))\n")
    if recipe.descriptors:
        maps = [f"map{i}" for i in range(len(recipe.descriptors))]
        lines.append(f"    {', '.join(maps)}, = maps[({', '.join(places[name] for name in needed)},)]\n")
        values += maps
    if recipe.persistent:
        lines.append("    programs = x * y * z\n")
        sizes, values = ["programs if programs < most else most", "1", "1"], [*values, "x", "y", "z"]
    return Passing(lines, [*sizes, "stream", *values])


def passing_function(arguments: Sequence[str], passed: Passing, scope: Mapping[str, object]) -> Direct:
    """``passed(grid sizes, stream, arguments of the signature)``: the values, as a tuple."""
    lines = [*passed.lines, f"    return {', '.join(passed.values)}\n"]
    return _function("passed", (*_CONFIGURATION, *arguments), lines, scope)


def direct_function(
    count: int, guards: Sequence[Guard], places: Mapping[str, str], passed: Passing, scope: Mapping[str, object]
) -> Direct:
    """``direct(grid as given, v0, v1 ...)``: the whole launch, but for hooks. It checks the grid, asks for the current
    stream, and leaves arguments that break a guard to ``otherwise``, which takes the same."""
    values = [f"v{i}" for i in range(count)]
    lines = [_GRID]
    if guards:
        given = ", ".join(["grid", *values])
        holds = condition(guards, {**places, PROGRAMS: _PROGRAMS})
        lines.append(f"    if not ({holds}):\n        return otherwise({given})\n")
    start = _START.format(passed=", ".join(passed.values))
    lines += ["    stream = streams.current(index)\n", *passed.lines, start]
    return _function("direct", ("grid", *values), lines, scope)


def _function(name: str, parameters: Sequence[str], lines: Sequence[str], scope: Mapping[str, object]) -> Direct:
    # Each function has a copy of the code, as Python fits code to the globals and calls that it meets: two kernels that
    # shared one took 0.3 us longer when they were launched in turn.
    code = _compiled(f"def {name}({', '.join(parameters)}):\n{''.join(lines)}").replace()
    return types.FunctionType(code, {"__builtins__": builtins, **scope}, name)


@functools.lru_cache(maxsize=256)
def _compiled(text: str) -> types.CodeType:
    """The code of a function. Kept, as variants of a kernel mostly have one text, which takes 0.4 ms to compile."""
    module = compile(text, "<direct launch>", "exec")
    return next(constant for constant in module.co_consts if isinstance(constant, types.CodeType))
