"""What measurements must be to be stored: readers take logarithms of sizes, divide by times and round ratios."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from deuteron.compiler.printable import printable_line
from deuteron.tuner import Interval, Trial
from deuteron.tuner.codec import MOST_INTEGER
from deuteron.tuner.errors import SchemaError

#: Of times in ns and of ratios: below it the reciprocal of one says nothing, and soon is infinite.
LEAST_VALUE = 1e-9


def check_sizes(shape: Mapping[str, int], where: str) -> None:
    """Refuse what no search has: readers of what is stored compare the logarithms of sizes.

    Raises:
        SchemaError: a size is out of range.
    """
    for dim, size in shape.items():
        if not 1 <= size <= MOST_INTEGER:
            raise SchemaError(f"{where}: {dim[:40]!r} is {str(size)[:40]}", hint="sizes are from 1 to 2**63 - 1")


def check_positive(value: Interval, where: str) -> None:
    """Refuse a time or a ratio that nobody measured: what divides by it, or rounds it, would fail.

    Raises:
        SchemaError: it is not above 0, or too large.
    """
    for name, number in (("median", value.median), ("low", value.low), ("high", value.high)):
        if not LEAST_VALUE <= number <= MOST_INTEGER:
            raise SchemaError(f"{where}.{name}: {number:g}", hint=f"from {LEAST_VALUE:g} to 2**63 - 1")


def check_names(where: str, names: Iterable[str]) -> None:
    """Refuse what would act on the terminals and in the files of those who read it.

    Raises:
        SchemaError: a name has a control character.
    """
    for name in names:
        if printable_line(name) != name:
            raise SchemaError(f"{where}: {name[:40]!r} has a control character", hint="names are of printable text")


def check_trial(trial: Trial) -> None:
    """Raises :class:`SchemaError` for a time or a configuration that no trial has."""
    times = () if trial.time_ns is None else (trial.time_ns.median, trial.time_ns.low, trial.time_ns.high)
    # A clock may be too coarse for a kernel: a time of 0 is one, though nobody starts from it.
    if not all(0 <= time <= MOST_INTEGER for time in times):
        raise SchemaError(f"trial.time_ns: {max(times, key=abs):g} ns", hint="from 0 to 2**63 - 1")
    check_names("trial.config", trial.config)
    for name, value in trial.config.items():
        if isinstance(value, int | float) and not abs(value) <= MOST_INTEGER:
            raise SchemaError(f"trial.config: {name[:40]!r} is beyond 64 bits")
