"""Launch hooks that a session can have: ``hook="triton"``, or the same with a choice of kernels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from numbers import Number
from typing import Self

from ..errors import UsageError
from ..places import places
from ..tree import METADATA_SCOPE

#: Here for programs that know Proton before 3.9; now it is in the module of states.
COMPUTE_METADATA_SCOPE_NAME = METADATA_SCOPE

_NUMBERS = frozenset({int, float})
_RESERVED = frozenset({"name", "function", "stream"})


class LaunchMetadata:
    """Books launches under the name, and with the metrics, that a kernel's ``launch_metadata`` gives.

    ``include`` and ``exclude`` are regular expressions matched from the start of the kernel's name, and again of the
    name that its metadata gives; kernels that do not pass are recorded without metadata.
    """

    def __init__(self, include: str | None = None, exclude: str | None = None) -> None:
        self.configure(include=include, exclude=exclude)

    def configure(self, *, include: str | None = None, exclude: str | None = None) -> None:
        """Choose the kernels. Raises UsageError for a bad regular expression."""
        self._include = _compile(include)
        self._exclude = _compile(exclude)
        places.forget()

    def wants(self, name: str) -> bool:
        """Is a kernel of this name chosen?"""
        if self._include is not None and self._include.match(name) is None:
            return False
        return self._exclude is None or self._exclude.match(name) is None


class SharedLaunchMetadata(LaunchMetadata):
    """The process's own :class:`LaunchMetadata`: every call gives the same object, which keeps the
    choice that was made last."""

    _only: Self | None = None

    def __new__(cls) -> Self:
        if cls._only is None:
            cls._only = super().__new__(cls)
            LaunchMetadata.__init__(cls._only)
        return cls._only

    def __init__(self) -> None:
        """Nothing: the choice of kernels stays as it is."""


LaunchHook = SharedLaunchMetadata  # Proton's name


def _compile(pattern: str | None) -> re.Pattern[str] | None:
    if not pattern:
        return None
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(
            f"{pattern!r} is not a regular expression: {error}",
            hint="special characters need a backslash",
        ) from error


def metrics_of(metadata: Mapping[str, object]) -> dict[str, object]:
    """The metrics in what a ``launch_metadata`` function returned: all numbers, arrays and tensors under free names."""
    return {
        key: value
        for key, value in metadata.items()
        if key not in _RESERVED and (type(value) in _NUMBERS or isinstance(value, Number) or hasattr(value, "tolist"))
    }
