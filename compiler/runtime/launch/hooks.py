"""Launch hooks: how a profiler sees every kernel launch. With no hook installed a launch pays one attribute read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..device import Device


@dataclass(slots=True)
class LaunchEvent:
    """One launch, given to every hook before (``enter``) and after (``exit``) it.

    ``metadata`` evaluates the kernel's ``launch_metadata`` when called, and is empty for kernels without one.
    ``start_ns`` and ``end_ns`` are on ``time.perf_counter_ns``'s clock and set before ``exit`` on the CPU target, where
    a launch has ended by then; on a GPU they stay None.
    """

    name: str
    device: Device
    stream: int
    grid: tuple[int, int, int]
    metadata: Callable[[], dict[str, object]]
    start_ns: int | None = None
    end_ns: int | None = None


class LaunchHook(Protocol):
    """Sees launches. ``exit`` is called even when the launch raised; hooks leave in the reverse order they entered."""

    def enter(self, event: LaunchEvent) -> None:
        """Called before the launch; a hook that raises stops it."""
        ...

    def exit(self, event: LaunchEvent) -> None:
        """Called after the launch; on a GPU the kernel may still run."""
        ...


class _Installed:
    """The hooks as an immutable tuple, so that a launch reads it without a lock."""

    __slots__ = ("hooks",)

    def __init__(self) -> None:
        self.hooks: tuple[LaunchHook, ...] = ()


installed = _Installed()
_lock = threading.Lock()


def add_launch_hook(hook: LaunchHook) -> None:
    """Call ``hook`` around every launch from now on; adding it twice changes nothing."""
    with _lock:
        if not any(h is hook for h in installed.hooks):
            installed.hooks = (*installed.hooks, hook)


def remove_launch_hook(hook: LaunchHook) -> None:
    """Stop calling ``hook``; removing an absent one changes nothing."""
    with _lock:
        installed.hooks = tuple(h for h in installed.hooks if h is not hook)


def launch_with_hooks(event: LaunchEvent, launch: Callable[[], None]) -> None:
    """Run ``launch`` between the hooks' ``enter`` and ``exit``."""
    hooks = installed.hooks
    entered: list[LaunchHook] = []
    try:
        for hook in hooks:
            hook.enter(event)
            entered.append(hook)
        launch()
    finally:
        for hook in reversed(entered):
            hook.exit(event)
