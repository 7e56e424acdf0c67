"""Parameters that change no code: found by compiling some configurations as far as the GPU stage.

Whether an option does anything may depend on more than the kernel: an array whose rows have an odd length is fed by no
ring, so that ``num_stages`` is idle at that shape and dtype and not at another. Neither rules nor a look at the text
can tell without doing again what the compiler does, so the compiler is asked.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from deuteron.compiler.errors import DeuteronError

from ..codec import Scalar, canonical_json
from ..space import Configuration, Space

if TYPE_CHECKING:
    from deuteron.compiler.launch_recipe import LaunchRecipe
    from deuteron.compiler.runtime.variant.variant import Variant

#: Schedule options whose effect depends on shape and dtype. The number of warps always shows in the code.
COMPARED = ("num_stages", "persistent")
#: Configurations that are looked at, and of these compiled before an option counts as idle.
DRAWN, COMPILED = 24, 4
#: Whose text, of some 10 kB each, a process keeps.
CODES = 256


def without_effect(
    space: Space, default: Configuration, names: Iterable[str], code: Callable[[Configuration], str | None]
) -> tuple[str, ...]:
    """Those of ``names`` that change the ``code`` of none of the configurations that allow most values.

    ``code``: what runs a configuration, None for one that cannot run. A parameter with one valid value everywhere is
    not among the results, since nothing was compared.
    """
    drawn = random.Random(0)
    configs = [default, *itertools.islice(space.samples(drawn), DRAWN)]
    return tuple(name for name in names if _is_idle(space, configs, name, code))


def _is_idle(
    space: Space, configs: Iterable[Configuration], name: str, code: Callable[[Configuration], str | None]
) -> bool:
    compared = False
    choices = next(p.choices for p in space.parameters if p.name == name)
    families = [[c for value in choices if space.contains(c := {**base, name: value})] for base in configs]
    for family in sorted(families, key=len, reverse=True)[:COMPILED]:
        if len(family) < 2:
            break
        family.sort(key=lambda config: _place(config[name]))  # its ends differ most
        codes = [made for config in (family[0], family[-1], *family[1:-1][:1]) if (made := code(config)) is not None]
        if len({*codes}) > 1:
            return False
        compared = compared or len(codes) > 1
    return compared


def _place(choice: Scalar) -> tuple[bool, float, str]:
    """Where a choice stands among others, in whatever order a space lists them: numbers first, which have an order of
    their own, and what has none by its text."""
    text = canonical_json(choice)
    return (False, choice, text) if isinstance(choice, int | float) else (True, 0, text)


def gpu_code(variant: Variant, scalars: Mapping[str, int | float]) -> str | None:
    """The GPU IR that a launch with these arguments runs; None where it cannot be compiled, which is not this module's
    to report: as a trial the configuration fails with the reason."""
    while True:
        made = _gpu_stage(_Keyed(variant.key, variant))
        if made is None:
            return None
        code, recipe = made
        broken = () if recipe is None else recipe.broken_by(scalars)
        if not broken:
            return code
        variant = variant.without(broken)


@dataclass(frozen=True)
class _Keyed:
    """A variant, which is equal to others of its key."""

    key: str
    variant: Variant = field(compare=False)


@lru_cache(CODES)
def _gpu_stage(wanted: _Keyed) -> tuple[str, LaunchRecipe | None] | None:
    """The GPU IR of a variant and how it is launched: the searches of many shapes ask for the same ones."""
    from deuteron.compiler.runtime.variant.pipeline import build  # lazy: the compiler takes a while to load

    try:
        made = build(wanted.variant, stop_after="gpu")
    except DeuteronError:
        return None
    return str(made.artifacts["gpu"]), made.recipe
