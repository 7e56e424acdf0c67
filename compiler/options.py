"""The schedule of a variant: everything that changes the code but not what it computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import get_args, get_type_hints

from .errors import ImpossibleOption, SignatureError


@dataclass(frozen=True)  # without slots: programs for Triton ask for its options' __dict__
class Schedule:
    """Launch and code-generation choices of one variant, searched beside the kernel's own block sizes.

    ``num_warps``: warps per program, a power of two; GPUs have room for 32, and the CPU takes any number (Triton's
    counts one thread a warp). ``num_stages``: slots of the rings that feed matrix products, as far as shared memory
    goes, besides those that several groups of warps are at; 1, or 0: no overlap of copies and products.
    ``persistent``: at most one program per SM runs, and works on many tiles; None leaves it to the compiler.
    ``maxnreg``: register cap per thread, None for the assembler's choice. ``enable_fp_fusion``: contract a*b+c to fma.
    ``debug``: emit tl.device_assert. ``sanitize_overflow``: assert that the kernel's integers do not overflow; launches
    with ``debug`` do unless they say otherwise, and others never. ``num_ctas``, over which Triton spreads a program, is
    taken so that kernels written for it run: one CTA runs a program here. :func:`effective_options` says what changes
    code where.

    The last two say how programs begin, and are part of what a kernel means (:data:`LAUNCH_OPTIONS`).
    ``launch_cooperative_grid``: all programs of the grid run at the same time, so that they may wait for each other; a
    grid that the device has no room for is an error. ``launch_pdl``: a kernel that says where it needs the results of
    the one before it on its stream (``gdc_wait``) may begin while that one still runs.

    What only some kernels or targets cannot have is refused where they are compiled (:mod:`.gpu.legality`).

    Raises:
        SignatureError: a value is of the wrong type.
        ImpossibleOption: a value is outside its range; an IllegalSchedule, which ``@autotune`` passes over.
    """

    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    persistent: bool | None = None
    maxnreg: int | None = None
    enable_fp_fusion: bool = True
    debug: bool = False
    sanitize_overflow: bool = False
    launch_cooperative_grid: bool = False
    launch_pdl: bool = False

    def __post_init__(self) -> None:
        for name, taken in _TYPES.items():
            if type(value := getattr(self, name)) not in taken:
                what = {int: "an int", bool: "a bool"}[taken[0]]
                raise SignatureError(f"schedule option {name} = {value!r}", hint=f"it takes {what}")
        if self.num_warps < 1 or self.num_warps & (self.num_warps - 1):
            raise ImpossibleOption(
                f"num_warps = {self.num_warps}: it must be a power of 2", hint="use 1, 2, 4, 8, 16 or 32"
            )
        if self.num_stages < 0:
            raise ImpossibleOption(f"num_stages = {self.num_stages} is not possible", hint="use 0 or more")
        if self.num_ctas not in (1, 2, 4, 8, 16):
            raise ImpossibleOption(f"num_ctas = {self.num_ctas} is not possible", hint="use 1, 2, 4, 8 or 16")
        if self.maxnreg is not None and not 16 <= self.maxnreg <= 256:
            raise ImpossibleOption(f"maxnreg = {self.maxnreg} is not possible", hint="use 16 to 256, or None")


#: The types that each option takes.
_TYPES: Mapping[str, tuple[type, ...]] = {
    name: get_args(hint) or (hint,) for name, hint in get_type_hints(Schedule).items()
}

#: Names that a configuration may set besides the kernel's own constexpr parameters.
SCHEDULE_OPTIONS: tuple[str, ...] = tuple(f.name for f in fields(Schedule))

#: Options of Triton's launches that are no schedule options here, with the values in which they ask for nothing, which
#: are taken. Libraries of :func:`asks_for_nothing` are ours in any case; launches on GPUs take any ``arch``.
NEUTRAL_OPTIONS: Mapping[str, tuple[object, ...]] = {
    "arch": (None,),
    "ir_override": (None,),
    "extern_libs": (None,),
}


def asks_for_nothing(name: str, value: object) -> bool:
    """Whether a neutral option has a value that is taken. ``extern_libs`` may say where libdevice is, a mapping or
    pairs of names and paths: its functions are written in the language here, and the file is not read."""
    if name == "extern_libs" and value is not None:
        pairs = value.items() if isinstance(value, Mapping) else value
        return isinstance(pairs, Iterable) and all(isinstance(p, tuple) and p[:1] == ("libdevice",) for p in pairs)
    return value in NEUTRAL_OPTIONS[name]


#: Of the schedule options, the ones that change code, by the kind of target. Spaces and cache keys follow this table,
#: and a test compiles a kernel per option and target to keep it true.
_EFFECTIVE: Mapping[str, tuple[str, ...]] = {
    "cpu": ("enable_fp_fusion", "debug", "sanitize_overflow"),
    "cuda": ("num_warps", "num_stages", "persistent", "maxnreg", "enable_fp_fusion", "debug", "sanitize_overflow"),
}


#: Schedule options that change how programs begin, by the kind of target. Variants differ in them, as their recipes do,
#: and no search tries them: a kernel that waits for other programs is wrong without the first one, and another gains
#: nothing from it; what the second one brings depends on what runs before.
LAUNCH_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "cpu": ("launch_cooperative_grid",),
    "cuda": ("launch_cooperative_grid", "launch_pdl"),
}

#: Of the options that change code, the ones that change only what feeds matrix products.
_OF_PRODUCTS = ("num_stages",)


def effective_options(kind: str, *, products: bool = True) -> tuple[str, ...]:
    """The schedule options that code for targets of this kind (``cpu``, ``cuda``) depends on. The others are accepted
    and change nothing. ``products``: whether kernels with matrix products are meant."""
    return tuple(name for name in _EFFECTIVE[kind] if products or name not in _OF_PRODUCTS)
