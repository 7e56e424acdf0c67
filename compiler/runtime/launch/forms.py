"""What a compiled kernel was launched with before: arguments of the same form fit as well, and need no closer look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import DeuteronError
from ...signature import ArgumentType
from ..arrays.arguments import readers
from ..device import Device

#: Classes of compile-time values that are kept.
_PLAIN = (int, float, str, type(None))


class LaunchForms:
    """Forms of arguments that one kernel took. A form is the types, alignments and devices of the arguments that are
    passed, as the readers' keys have them, and the values of those that are not."""

    __slots__ = ("_places", "_known")

    def __init__(self) -> None:
        #: By the number of arguments: which are passed, in the signature's order, and which are not.
        self._places: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self._known: dict[tuple[object, ...], Device] = {}

    def find(self, args: Sequence[object]) -> tuple[Device, tuple[Any, ...]] | None:
        """Where a launch with these arguments runs, and the machine values that it passes; None for a new form, and for
        what cannot be read."""
        places = self._places.get(len(args))
        if places is None:
            return None
        passed, others = places
        try:
            read = [readers[args[place].__class__](args[place]) for place in passed]
            where = self._known.get((*[key for key, _ in read], *[args[place] for place in others]))
        except (DeuteronError, RuntimeError, TypeError):  # PyTorch's; a value without a hash
            return None
        return None if where is None else (where, tuple([value for _, value in read]))

    def learn(
        self, args: Sequence[object], parameters: Sequence[str], signature: Mapping[str, ArgumentType], where: Device
    ) -> None:
        """The arguments of ``parameters`` fit a kernel of this ``signature`` and run on ``where``. What is passed in
        parts is not kept."""
        if not signature.keys() <= set(parameters):
            return
        passed = tuple(parameters.index(name) for name in signature)
        others = tuple(place for place in range(len(args)) if place not in passed)
        keys = [readers[args[place].__class__](args[place])[0] for place in passed]
        tell = all(_tells(key, kind) for key, kind in zip(keys, signature.values(), strict=True))
        if tell and all(isinstance(args[place], _PLAIN) for place in others):
            self._known[(*keys, *[args[place] for place in others])] = where
            self._places[len(args)] = passed, others


def _tells(key: object, kind: ArgumentType) -> bool:
    """Whether all arguments with this key are as good as one of them."""
    if kind.block or not isinstance(key, str):
        return False
    return kind.divisibility == 1 or key.partition("@")[0].endswith(f":{kind.divisibility}")
