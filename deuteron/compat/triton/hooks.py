"""Triton's hooks around compilations, loads and launches, called from deuteron's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from deuteron.compat.triton.backends.compiler import target_of
from deuteron.compiler.runtime.device import Device
from deuteron.compiler.runtime.launch.hooks import (
    LaunchEvent,
    SearchDone,
    VariantEvent,
    VariantLoad,
    VariantReady,
    VariantRequest,
    VariantUnload,
    add_launch_hook,
    add_variant_listener,
    remove_launch_hook,
)
from deuteron.compiler.runtime.variant.metadata import KernelMetadata
from deuteron.compiler.runtime.variant.specialization import specialization_text

Hook = Callable[..., object]
#: Called with the keywords key, repr, fn, compile, is_manual_warmup and already_compiled.
JitHook = Callable[..., object]
#: Called with the keywords src, metadata, metadata_group, times and cache_hit.
CompilationListener = Callable[..., object]
#: Called with the keywords fn, key, best_config, configs_timings, duration and cache_hit.
TuningListener = Callable[..., object]

_STAGES = ("tile", "gpu", "llvm", "ptx", "cubin", "object")


class HookChain:
    """Functions called one after the other; with ``reversed`` the one added last comes first."""

    def __init__(self, reversed: bool = False) -> None:
        self.calls: list[Hook] = []
        self.reversed = reversed
        self.changed: Callable[[], None] = lambda: None

    def add(self, func: Hook) -> None:
        """Call ``func`` from now on; adding it twice changes nothing."""
        if func not in self.calls:
            self.calls.append(func)
            self.changed()

    def remove(self, func: Hook) -> None:
        """Stop calling ``func``; removing an absent one changes nothing."""
        if func in self.calls:
            self.calls.remove(func)
            self.changed()

    def __call__(self, *args: object, **kwargs: object) -> None:
        for call in self.calls[::-1] if self.reversed else list(self.calls):
            call(*args, **kwargs)


@dataclass(frozen=True)
class CompileTimes:
    """What a compilation took, in microseconds; of one from the cache only how long it took to get it, as
    ``ir_initialization``."""

    ir_initialization: int
    lowering_stages: list[tuple[str, int]] = field(default_factory=list)
    store_results: int = 0

    @property
    def total_lowering(self) -> int:
        """All stages after the first IR."""
        return sum(spent for _, spent in self.lowering_stages)

    @property
    def total(self) -> int:
        """Everything."""
        return self.ir_initialization + self.total_lowering + self.store_results


@dataclass(frozen=True)
class JitFunctionInfo:
    """Which kernel a hook is told of."""

    module: str
    name: str
    jit_function: Any


class LaunchFacts:
    """What a launch hook is told: :meth:`get` gives name and stream, and what the kernel's ``launch_metadata`` says."""

    def __init__(self, event: LaunchEvent) -> None:
        self._event = event

    def get(self) -> dict[str, object]:
        """A dictionary, made when asked for."""
        event = self._event
        return {"name": event.name, "function": None, "stream": event.stream, **event.metadata()}


class RuntimeHooks(Protocol):
    """Where the hooks are found that are called."""

    launch_enter_hook: Any
    launch_exit_hook: Any
    kernel_load_start_hook: Any
    kernel_load_end_hook: Any
    kernel_unload_hook: Any
    jit_cache_hook: Any
    jit_post_compile_hook: Any


class Bridge:
    """Listens to deuteron and calls Triton's hooks. ``runtime`` and the two others, for compilations and for searches
    of ``@autotune``, look up what is set at that moment."""

    def __init__(
        self, runtime: Callable[[], RuntimeHooks], compilations: Callable[[], Any], searches: Callable[[], Any]
    ) -> None:
        self._runtime = runtime
        self._compilations, self._searches = compilations, searches
        add_variant_listener(self.tell)

    def refresh(self) -> None:
        """Watch launches while somebody wants to know; without hooks they take the short way."""
        runtime = self._runtime()
        if _wanted(runtime.launch_enter_hook) or _wanted(runtime.launch_exit_hook):
            add_launch_hook(self)
        else:
            remove_launch_hook(self)

    def enter(self, event: LaunchEvent) -> None:
        """Before a launch."""
        if hook := self._runtime().launch_enter_hook:
            hook(LaunchFacts(event))

    def exit(self, event: LaunchEvent) -> None:
        """After a launch."""
        if hook := self._runtime().launch_exit_hook:
            hook(LaunchFacts(event))

    def tell(self, event: VariantEvent) -> None:
        """Before and after a variant is made or loaded, when a kernel lets go of it, and after a search."""
        runtime = self._runtime()
        match event:
            case VariantRequest():
                hook = runtime.jit_cache_hook if event.metadata is None else runtime.jit_post_compile_hook
                if hook is not None:
                    hook(**_request_facts(event))
            case VariantReady():
                if (listener := self._compilations()) is not None:
                    listener(**_compilation_facts(event))
            case VariantLoad():
                hook = runtime.kernel_load_end_hook if event.done else runtime.kernel_load_start_hook
                if hook is not None:
                    hook(None, None, event.metadata.name, {}, event.metadata.hash)
            case VariantUnload():
                if (hook := runtime.kernel_unload_hook) is not None:
                    hook(event.module, event.function, event.metadata.name, {}, event.metadata.hash)
            case SearchDone():
                if (listener := self._searches()) is not None:
                    listener(**_search_facts(event))


def _wanted(hook: Any) -> bool:
    return bool(hook.calls) if isinstance(hook, HookChain) else hook is not None


def _request_facts(event: VariantRequest) -> dict[str, object]:
    kernel: Any = event.kernel
    variant, schedule = event.variant, event.variant.schedule
    function = kernel.python()
    signature = {name: str(kind) for name, kind in variant.signature.items()}
    name = getattr(function, "__qualname__", variant.source.name)
    options = {
        "num_warps": schedule.num_warps,
        "num_ctas": schedule.num_ctas,
        "num_stages": schedule.num_stages,
        "enable_fp_fusion": schedule.enable_fp_fusion,
        "launch_cooperative_grid": schedule.launch_cooperative_grid,
    }
    shown = ", ".join(f"{option}={value}" for option, value in options.items())
    return {
        "key": variant.key,
        "repr": f"{name}[{shown}]({', '.join(f'{n}: {kind}' for n, kind in signature.items())})",
        "fn": JitFunctionInfo(getattr(function, "__module__", ""), name, kernel),
        "compile": {
            "key": variant.key,
            "signature": signature,
            "device": _ordinal(event.device),
            "constants": dict(variant.constants),
            **options,
            "extern_libs": (),
            "configs": [{}],
            "specialization_data": specialization_text(variant),
            "is_warmup": event.warmup,
        },
        "is_manual_warmup": event.warmup,
        "already_compiled": False,
    }


def _search_facts(event: SearchDone) -> dict[str, object]:
    return {
        "fn": event.kernel,
        "key": event.key,
        "best_config": event.best,
        "configs_timings": dict(event.timings_ms),
        "duration": event.seconds,
        "cache_hit": event.seconds is None,
    }


def _ordinal(device: Device) -> int:
    _, _, index = device.name.partition(":")
    return int(index or 0)


def _compilation_facts(event: VariantReady) -> dict[str, object]:
    metadata = event.metadata
    facts = {
        "name": metadata.name,
        "hash": metadata.hash,
        "target": target_of(event.variant.target),
        "num_warps": metadata.num_warps,
        "num_stages": metadata.num_stages,
        "num_ctas": metadata.num_ctas,
        "shared": metadata.shared,
    }
    return {
        "src": event.variant.source,
        "metadata": facts,
        "metadata_group": {},
        "times": _times(metadata, event.elapsed_ns),
        "cache_hit": metadata.cached,
    }


def _times(metadata: KernelMetadata, elapsed_ns: int) -> CompileTimes:
    elapsed = max(1, elapsed_ns // 1000)
    if metadata.cached:
        return CompileTimes(elapsed)
    spent = metadata.stage_ms
    stages = [(stage, round(spent[stage] * 1000)) for stage in _STAGES if stage in spent]
    first = max(1, round(spent.get("frontend", 0) * 1000))
    return CompileTimes(first, stages, max(1, elapsed - first - sum(us for _, us in stages)))
