"""Launch hooks: how a profiler sees every kernel launch. With no hook installed a launch pays one attribute read.

Listeners see the rarer events before a first launch: a process needs a variant, has it (compiled or from the
cache), and loads it onto a device; ``@autotune`` has chosen. They also see when nobody has a loaded kernel any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import ArgumentMismatch

if TYPE_CHECKING:
    from ...source.kernel import Sourced
    from ..device import Device
    from ..variant.metadata import KernelMetadata
    from ..variant.variant import Variant
    from .records import LaunchRecords


Describe = Callable[..., Mapping[str, object]]


class Launched(Protocol):
    """What hooks see of a compiled kernel; it is a :class:`~.compiled.CompiledKernel`."""

    metadata: KernelMetadata
    variant: Variant | None

    def code(self) -> bytes:
        """What devices load."""
        ...


@dataclass(slots=True)
class LaunchEvent:
    """One launch, given to every hook before (``enter``) and after (``exit``) it.

    ``metadata`` evaluates the kernel's ``launch_metadata`` when called, and is empty for kernels without one.
    ``kernel`` is what was compiled, None where the kernel is interpreted; ``arguments`` gives those of its signature by
    name when called, as the user passed them, descriptors and tuples part by part.
    ``start_ns`` and ``end_ns`` are on ``time.perf_counter_ns``'s clock and set before ``exit`` on the CPU target, where
    a launch has ended by then; on a GPU they stay None. ``records`` are those of an instrumented kernel,
    set before ``exit``.
    """

    name: str
    device: Device
    stream: int
    grid: tuple[int, int, int]
    metadata: Callable[[], dict[str, object]]
    kernel: Launched | None = None
    arguments: Callable[[], dict[str, object]] = dict
    start_ns: int | None = None
    end_ns: int | None = None
    records: LaunchRecords | None = None


@dataclass(frozen=True, slots=True)
class VariantRequest:
    """A launch or a warm-up needs a variant that this process does not have yet. Listeners get it twice: before with
    ``metadata`` None, and afterwards with what is known about the result; not afterwards where arguments turn out to
    break its guards, for then another variant is needed."""

    kernel: Sourced
    variant: Variant
    device: Device
    warmup: bool
    metadata: KernelMetadata | None = None


@dataclass(frozen=True, slots=True)
class VariantReady:
    """A variant was compiled, or read from the disk cache (``metadata.cached``), in ``elapsed_ns`` of wall time."""

    variant: Variant
    metadata: KernelMetadata
    elapsed_ns: int


@dataclass(frozen=True, slots=True)
class VariantLoad:
    """A variant is put into a device's memory. Listeners get it twice: before and when it is ``done``."""

    metadata: KernelMetadata
    device: Device
    done: bool


@dataclass(frozen=True, slots=True)
class VariantUnload:
    """A compiled kernel that was loaded onto a device is no more, or lets go of what was loaded. ``module`` and
    ``function``: as :class:`~.loaded.Loaded` has them."""

    metadata: KernelMetadata
    device: Device
    module: int
    function: int


@dataclass(frozen=True, slots=True)
class SearchDone:
    """A search of ``@autotune`` chose a configuration. ``timings_ms`` has median, 20th and 80th percentile by
    configuration. ``seconds`` is what the search took; None where all timings were on disk."""

    kernel: Sourced
    key: tuple[object, ...]
    best: object
    timings_ms: Mapping[Any, tuple[float, float, float]]
    seconds: float | None


VariantEvent = VariantRequest | VariantReady | VariantLoad | VariantUnload | SearchDone
VariantListener = Callable[[VariantEvent], object]


class LaunchHook(Protocol):
    """Sees launches. ``exit`` is called even when the launch raised; hooks leave in the reverse order they entered."""

    def enter(self, event: LaunchEvent) -> None:
        """Called before the launch; a hook that raises stops it."""
        ...

    def exit(self, event: LaunchEvent) -> None:
        """Called after the launch; on a GPU the kernel may still run."""
        ...


class _Installed:
    """The hooks as an immutable tuple, so that a launch reads it without a lock; listeners likewise."""

    __slots__ = ("hooks", "listeners")

    def __init__(self) -> None:
        self.hooks: tuple[LaunchHook, ...] = ()
        self.listeners: tuple[VariantListener, ...] = ()

    def tell(self, event: VariantEvent) -> None:
        """Call every listener, in the order in which they were added; one that raises stops what is under way."""
        for listener in self.listeners:
            listener(event)


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


def add_variant_listener(listener: VariantListener) -> None:
    """Call ``listener`` with every :class:`VariantRequest`, :class:`VariantReady`, :class:`VariantLoad`,
    :class:`VariantUnload` and :class:`SearchDone` from now on; adding it twice changes nothing."""
    with _lock:
        if not any(known is listener for known in installed.listeners):
            installed.listeners = (*installed.listeners, listener)


def described(kernel: str, describe: Describe | None, *launch: Any) -> dict[str, object]:
    """What a kernel's ``launch_metadata`` says of a launch, that is of grid, kernel and arguments; nothing without one.

    Raises:
        ArgumentMismatch: it says no values by name.
    """
    given = describe(*launch) if describe is not None else {}
    if not isinstance(given, Mapping):
        raise ArgumentMismatch(
            f"{kernel}: its launch_metadata returned {given!r}", hint='return values by name, such as {"flops": 2e9}'
        )
    return dict(given)


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
