"""The options of ``backend="instrumentation"``: Proton's names, and why those without effect here are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deuteron.compiler.record_buffer import MOST_WARPS, RecordForm
from deuteron.compiler.runtime.launch.records import RecordSettings

from .errors import UsageError

#: Names of modes that are about records inside kernels.
KERNEL_MODES = ("default", "mma")

_BY_WARP = "each warp has a clock and a ring of its own, and a session can choose warps by sampling_options"
#: Of options with few values: those that records have anyway, and why the others are refused.
_VALUES: Mapping[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "metric_type": (("cycle",), {}),
    "buffer_type": (
        ("global",),
        dict.fromkeys(("shared", "stack"), "records go to global memory, as shared memory is the kernel's own"),
    ),
    "buffer_strategy": (("circular",), {"flush": "a ring that is full keeps the newest records"}),
    "granularity": (
        ("warp",),
        {
            "cta": _BY_WARP,
            **{f"warp_{count}": _BY_WARP for count in (2, 4, 8)},
            "warp_group": _BY_WARP,
            **{f"warp_group_{count}": _BY_WARP for count in (2, 4, 8)},
        },
    ),
    "sampling_strategy": (("none", "selective"), {}),
}
_OPTIMIZATIONS = ("clock32", "time_shift")
#: What these would do is done always, or never.
_REFUSED_OPTIMIZATIONS = {
    "sched_stores": "a warp stores its records 32 at a time anyway",
    "sched_barriers": "no barrier is put around records: they would change what they measure",
}
_OPTIONS = (*_VALUES, "buffer_size", "sampling_options", "optimizations")


def parse_kernel_options(mode: str, options: Sequence[str]) -> RecordSettings:
    """How to record, from a mode's name and its options.

    ``buffer_size``: bytes of the rings of one program, 0 for the usual size. ``sampling_strategy=selective`` with
    ``sampling_options=0,4``: only these warps record. ``optimizations``: ``clock32``, records of 32 bits instead of
    64; ``time_shift``, what recording takes is measured and taken out of the times; or both, with a comma between. The
    others have one value: ``metric_type=cycle``, ``buffer_type=global``, ``buffer_strategy=circular``,
    ``granularity=warp``.

    Raises:
        UsageError: an option that does not exist, or that would have no effect here; the message says why.
    """
    if mode == "mma":
        raise UsageError(
            "mode 'mma' is not supported: nothing is recorded but the scopes that a kernel names",
            hint="put scopes around the products, and use the mode 'default'",
        )
    given: dict[str, str] = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or name not in _OPTIONS:
            raise UsageError(f"unknown option {option!r} of in-kernel records", hint=f"options: {', '.join(_OPTIONS)}")
        given[name] = value.strip()
    for name, value in given.items():
        if name in _VALUES:
            _check_value(name, value)
    form = _form(given.get("optimizations", ""))
    return RecordSettings(_size(given.get("buffer_size", "0")), _warps(given), form)


def _check_value(name: str, value: str) -> None:
    known, refused = _VALUES[name]
    if value in known:
        return
    if value in refused:
        raise UsageError(f"{name}={value} is not supported: {refused[value]}", hint=f"{name}={known[0]}")
    raise UsageError(f"{name} cannot be {value!r}", hint=f"{name}={'|'.join(known)}")


def _form(optimizations: str) -> RecordForm:
    chosen = [value.strip() for value in optimizations.split(",") if value.strip()]
    for value in chosen:
        if value not in _OPTIMIZATIONS:
            why = _REFUSED_OPTIMIZATIONS.get(value)
            raise UsageError(
                f"optimizations={value} is not supported: {why}" if why else f"unknown optimization {value!r}",
                hint=f"optimizations={','.join(_OPTIMIZATIONS)}",
            )
    return RecordForm(short="clock32" in chosen, measured="time_shift" in chosen)


def _size(text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"buffer_size cannot be {text!r}", hint="bytes of one program, or 0 for the usual size")
    return int(text)


def _warps(given: Mapping[str, str]) -> tuple[int, ...] | None:
    chosen = [part.strip() for part in given.get("sampling_options", "").split(",") if part.strip()]
    selective = given.get("sampling_strategy", "none") == "selective"
    if selective != bool(chosen):
        raise UsageError(
            "sampling_strategy=selective and sampling_options belong together",
            hint="sampling_strategy=selective:sampling_options=0,4 records warps 0 and 4",
        )
    for part in chosen:
        if not part.isdecimal() or int(part) >= MOST_WARPS:
            raise UsageError(
                f"sampling_options: {part!r} is not a warp",
                hint=f"numbers from 0 to {MOST_WARPS - 1}, with commas between",
            )
    return tuple(sorted({int(part) for part in chosen})) if selective else None
