"""States: a label for what a thread does now, shown as the last frame of everything recorded meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from .open_scopes import plain_name, states
from .recorder import recorder
from .session import registry
from .tree import METADATA_OF, METADATA_SCOPE
from .wrapping import decorated

#: Names of the state of :class:`metadata_state`, as Proton calls them.
COMPUTE_METADATA_SCOPE_NAME = METADATA_SCOPE
COMPUTE_METADATA_SCOPE_PREFIX = METADATA_OF

P = ParamSpec("P")
R = TypeVar("R")


def enter_state(name: str) -> None:
    """Put the running context into a state until :func:`exit_state`. Of nested states the innermost counts.
    Raises UsageError for a name that is no text, or an empty one."""
    if registry.sessions:
        states.set((*states.get(), plain_name(name, "state")))
        recorder.follow()


def exit_state() -> None:
    """Leave the running context's innermost state; does nothing when there is none."""
    held = states.get()
    if held:
        states.set(held[:-1])
        recorder.follow()


class state:  # noqa: N801 - the name Proton's users write
    """A state as a context manager or a decorator: ``with proton.state("warmup"): ...``"""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Self:
        enter_state(self.name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        exit_state()

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """``function`` in this state, a generator while it runs."""
        return decorated(function, lambda resumed: self)


class metadata_state(state):  # noqa: N801 - the name Proton's users write
    """The state under which work for measuring itself is booked; the viewer hides it."""

    def __init__(self, kernel_name: str | None = None) -> None:
        super().__init__(f"{COMPUTE_METADATA_SCOPE_PREFIX}{kernel_name}" if kernel_name else METADATA_SCOPE)
