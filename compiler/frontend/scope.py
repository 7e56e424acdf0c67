"""What is known where control stands: the variables, and who has left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..language.tensor import tensor


@dataclass(slots=True, eq=False)
class LocalScope:
    """The variables of a function by name, and what early exits leave behind (see exits.py).

    Flags are False, True, or a run-time i1.
    """

    names: dict[str, object] = field(default_factory=dict)
    #: Whether control has left this place, by whatever exit.
    left: object = False
    #: Whether it left by return, and with what value; without a return that is anything.
    returned: object = False
    value: object = None
    #: Whether it left the innermost loop by break.
    broke: object = False
    #: Names that have a value only where nobody left by break or continue.
    doubtful: frozenset[str] = frozenset()

    def copy(self) -> LocalScope:
        """One whose variables change by themselves."""
        return replace(self, names=dict(self.names))

    def mapped(self, change: Callable[[object], object]) -> LocalScope:
        """One with ``change`` of each flag and value."""
        return LocalScope(
            {name: change(value) for name, value in self.names.items()},
            left=change(self.left),
            returned=change(self.returned),
            value=change(self.value),
            broke=change(self.broke),
            doubtful=self.doubtful,
        )


@dataclass(frozen=True, slots=True)
class Undefined:
    """A name that some path did not define; reading it is an error that says why."""

    why: str
    hint: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LastIndex:
    """The variable of a loop that is over. Hardly any kernel reads it again, so ``compute`` makes its value, at the
    point of insertion, where one does. Without an iteration the value is not specified, as in Triton."""

    compute: Callable[[], tensor]
