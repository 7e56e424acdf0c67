"""``@autotune``: time several configurations on the first launch of each kind, then use the fastest."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from .. import knobs
from ..errors import AssemblerError, CompileTimeAssertionFailure, LaunchError, OutOfResources
from .arguments import readers
from .benchmark import quantile, race
from .config import Config
from .constants import constant_text
from .contents import saved, zero
from .devices import Device, default_device, get_device
from .runner import Runner
from .tuning_results import FAILED, QUANTILES, Timing, TuningResults, as_timing
from .variant import nearest

if TYPE_CHECKING:
    from .jit import JITFunction

#: Errors that make a configuration unusable rather than the kernel wrong.
UNUSABLE = (OutOfResources, AssemblerError, CompileTimeAssertionFailure)


class BenchmarkFunction(Protocol):
    """A replacement for the built-in timing, as Triton takes it."""

    def __call__(self, kernel_call: Callable[[], object], *, quantiles: Sequence[float]) -> float | Sequence[float]: ...


class Autotuner(Runner):
    """A kernel with configurations. Launches as the kernel itself does, without the tuned parameters.

    After a launch ``best_config`` is the configuration it used, ``cache`` maps every tuning key to its best
    configuration, and ``configs_timings`` holds the last search's median, 20th and 80th percentile in ms.
    """

    def __init__(
        self,
        fn: Runner | JITFunction,
        configs: Sequence[Config],
        key: Sequence[str],
        *,
        prune_configs_by: Mapping[str, Any] | None = None,
        reset_to_zero: Sequence[str] | None = None,
        restore_value: Sequence[str] | None = None,
        pre_hook: Callable[..., object] | None = None,
        post_hook: Callable[..., object] | None = None,
        warmup: float | None = None,
        rep: float | None = None,
        do_bench: BenchmarkFunction | None = None,
        cache_results: bool = False,
    ) -> None:
        super().__init__(fn)
        self.configs = list(configs) or [Config({})]
        self.keys = list(key)
        self.cache: dict[tuple[str, ...], Config] = {}
        self.best_config: Config | None = None
        self.configs_timings: dict[Config, Timing] = {}
        self.failures: dict[Config, str] = {}
        self.bench_time = 0.0
        self.reset_to_zero = list(reset_to_zero or ())
        self.restore_value = list(restore_value or ())
        self.pre_hook, self.post_hook = pre_hook, post_hook
        self.warmup_ms = 25.0 if warmup is None else warmup
        self.rep_ms = 100.0 if rep is None else rep
        self.do_bench = do_bench
        self.cache_results = cache_results
        prune = dict(prune_configs_by or {})
        self._early_prune = prune.pop("early_config_prune", None)
        self._perf_model = prune.pop("perf_model", None)
        self._top_k = prune.pop("top_k", len(self.configs))
        for name in prune:
            known = ("early_config_prune", "perf_model", "top_k")
            raise LaunchError(f"prune_configs_by has no entry {name!r}", hint=nearest(name, known))

    # ---- launching -------------------------------------------------------------------------------------------

    def run(self, *args: object, grid: Any, warmup: bool = False, **kwargs: object) -> object:
        """Launch with the best configuration for these arguments, searching for it if it is not known."""
        self._check_names()
        arguments = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        if warmup:
            return [
                self.fn.run(*args, grid=grid, warmup=True, **kwargs, **config.all_kwargs())
                for config in self.prune(arguments, kwargs)
            ]
        config = self._choose(args, kwargs, grid, arguments)
        self.best_config = config
        if config.pre_hook is not None:
            config.pre_hook({**arguments, **config.all_kwargs()})
        return self.fn.run(*args, grid=grid, **kwargs, **config.all_kwargs())

    def _choose(
        self,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        grid: Any,
        arguments: dict[str, object],
    ) -> Config:
        self._check_conflicts(kwargs)
        if len(self.configs) == 1:
            return self.configs[0]
        key = self.tuning_key(arguments)
        if key not in self.cache:
            candidates = self.prune(arguments, kwargs)
            interpreting = knobs.interpret.get()
            if interpreting or len(candidates) == 1:
                self.cache[key] = candidates[0]  # timing an interpreter says nothing
            else:
                self.cache[key] = self._search(candidates, key, args, kwargs, grid, arguments)
        return self.cache[key]

    def tuning_key(self, arguments: Mapping[str, object]) -> tuple[str, ...]:
        """What a search is done once for: the values of ``key``, and the dtypes and device of all arrays."""
        parts = [_value_text(arguments[name]) for name in self.keys if name in arguments]
        for name in self.arg_names:
            value = arguments.get(name)
            if value is not None and hasattr(value, "dtype"):
                kind, _ = readers[type(value)](value)
                text, _, place = str(kind).partition("@")
                parts.append(f"{name}: {text.partition(':')[0]}@{place or 'cpu'}")
        return tuple(parts)

    def _check_names(self) -> None:
        """Names given to the decorator must be the kernel's; checked late, when its source is read anyway."""
        for what, names in (
            ("key", self.keys),
            ("reset_to_zero", self.reset_to_zero),
            ("restore_value", self.restore_value),
        ):
            for name in names:
                if name not in self.arg_names:
                    raise LaunchError(
                        f"autotune of {self.__name__}: {what} names {name!r}, which is not a parameter",
                        hint=nearest(name, self.arg_names),
                    )

    def _check_conflicts(self, kwargs: Mapping[str, object]) -> None:
        for config in self.configs:
            both = sorted(set(config.all_kwargs()) & set(kwargs))
            if both:
                raise LaunchError(
                    f"autotune of {self.__name__}: {', '.join(both)} is given in the launch and by the configurations",
                    hint="leave it to one of them",
                )

    # ---- pruning ---------------------------------------------------------------------------------------------

    def prune(self, arguments: Mapping[str, object], kwargs: Mapping[str, object]) -> list[Config]:
        """The configurations worth timing, as ``prune_configs_by`` says; never none.

        Raises:
            LaunchError: ``early_config_prune`` left nothing.
        """
        candidates = self.configs
        if self._early_prune is not None:
            candidates = list(self._early_prune(self.configs, dict(arguments), **kwargs))
            if not candidates:
                raise LaunchError(
                    f"autotune of {self.__name__}: early_config_prune left no configuration",
                    hint="let it keep at least one",
                )
        if self._perf_model is None:
            return candidates
        top_k = self._top_k
        if isinstance(top_k, float) and top_k <= 1.0:
            top_k = int(len(self.configs) * top_k)
        model = self._perf_model
        predicted = {c: model(**{**arguments, **c.all_kwargs()}) for c in candidates}
        return sorted(candidates, key=lambda c: float(predicted[c]))[: max(1, int(top_k))]

    # ---- searching -------------------------------------------------------------------------------------------

    def _search(
        self,
        candidates: list[Config],
        key: tuple[str, ...],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        grid: Any,
        arguments: dict[str, object],
    ) -> Config:
        start = time.perf_counter()
        device = _device_of(arguments)
        self.failures = {}
        results = TuningResults(self.base_fn, key, device)
        kept = [c for c in candidates if self._persistent(c)]
        timings = results.recall(kept)
        fresh = [c for c in candidates if c not in timings]
        restore = [saved(arguments[n]) for n in self.restore_value]
        calls = {c: self._call(c, args, kwargs, grid, arguments) for c in fresh}
        timings |= self._time(calls, device, lambda: self._reset(arguments, restore))
        self._reset(arguments, restore)
        results.remember({c: timings[c] for c in fresh if c in kept})
        self.configs_timings = timings
        self.bench_time = time.perf_counter() - start
        best = min(candidates, key=lambda c: timings[c])
        if timings[best] == FAILED:
            lines = [f"  {c}: {self.failures.get(c, 'failed')}" for c in candidates]
            raise LaunchError(
                f"autotune of {self.__name__}: none of {len(candidates)} configurations can run:\n" + "\n".join(lines),
                hint="add configurations with smaller blocks or fewer stages",
            )
        self._print(key, best, timings, reused=len(candidates) - len(fresh))
        return best

    def _call(
        self,
        config: Config,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        grid: Any,
        arguments: dict[str, object],
    ) -> Callable[[], object]:
        """One launch with a configuration, hooks included."""
        options = config.all_kwargs()
        everything = {**arguments, **options}

        def call() -> object:
            if config.pre_hook is not None:
                config.pre_hook(dict(everything))
            if self.pre_hook is not None:
                self.pre_hook(everything)
            try:
                launched = self.fn.run(*args, grid=grid, **kwargs, **options)
            except Exception as error:
                if self.post_hook is not None:
                    self.post_hook(everything, exception=error)
                raise
            if self.post_hook is not None:
                self.post_hook(everything, exception=None)
            return launched

        return call

    def _time(
        self,
        calls: Mapping[Config, Callable[[], object]],
        device: Device,
        before: Callable[[], object],
    ) -> dict[Config, Timing]:
        """Timings of all calls; configurations that cannot run are found first, by one launch each."""
        timings: dict[Config, Timing] = {}
        usable: list[Config] = []
        for config, call in calls.items():
            try:
                before()
                call()
                usable.append(config)
            except UNUSABLE as error:
                timings[config] = FAILED
                self.failures[config] = f"{type(error).__name__}: {error.message}"
        device.synchronize()
        if self.do_bench is not None:
            for config in usable:
                before()
                timings[config] = as_timing(self.do_bench(calls[config], quantiles=QUANTILES))
            return timings
        if usable:
            samples = race(
                [calls[c] for c in usable],
                device,
                warmup_ms=self.warmup_ms,
                rep_ms=self.rep_ms,
                before=before if self.reset_to_zero or self.restore_value else None,
            )
            for config, times in zip(usable, samples, strict=True):
                timings[config] = as_timing([quantile(times, q) for q in QUANTILES])
        return timings

    def _reset(self, arguments: Mapping[str, object], restore: Sequence[Callable[[], object]]) -> None:
        for name in self.reset_to_zero:
            zero(arguments[name])
        for put_back in restore:
            put_back()

    def _persistent(self, config: Config) -> bool:
        wanted = self.cache_results or knobs.cache_autotuning.get()
        return wanted and config.pre_hook is None and self.pre_hook is None

    def _print(self, key: tuple[str, ...], best: Config, timings: Mapping[Config, Timing], reused: int) -> None:
        if not knobs.print_autotuning.get():
            return
        print(
            f"Autotuning kernel {self.__name__},\nwith key as {key},\n"
            f"finished after {self.bench_time:.2f}s ({len(timings)} configurations, {reused} from the cache),\n"
            f"best config selected: {best};"
        )


def _value_text(value: object) -> str:
    try:
        return constant_text(value)
    except LaunchError:
        return type(value).__name__  # an array named in key: its dtype is part of the key anyway


def _device_of(arguments: Mapping[str, object]) -> Device:
    """The device of the first array."""
    for value in arguments.values():
        if hasattr(value, "dtype") or hasattr(value, "__dlpack__"):
            kind, _ = readers[type(value)](value)
            return get_device(str(kind).partition("@")[2] or "cpu")
    return default_device()


def autotune(
    configs: Sequence[Config],
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., object] | None = None,
    post_hook: Callable[..., object] | None = None,
    warmup: float | None = None,
    rep: float | None = None,
    do_bench: BenchmarkFunction | None = None,
    cache_results: bool = False,
) -> Callable[[Runner | JITFunction], Autotuner]:
    """Decorator: on the first launch for each value of ``key``, time every configuration and keep the fastest.

    ``prune_configs_by``: ``early_config_prune(configs, named_args, **kwargs)``, ``perf_model(**args)`` with ``top_k``
    (a number or a share). ``reset_to_zero`` and ``restore_value`` name arrays to reset between launches of a search.
    ``warmup`` and ``rep`` are milliseconds per configuration. ``do_bench(call, quantiles=...)`` replaces the timing,
    which is by medians over alternating rounds. ``cache_results`` (or TRITON_CACHE_AUTOTUNING) keeps timings on disk.
    """

    def decorate(fn: Runner | JITFunction) -> Autotuner:
        return Autotuner(
            fn,
            configs,
            key,
            prune_configs_by=prune_configs_by,
            reset_to_zero=reset_to_zero,
            restore_value=restore_value,
            pre_hook=pre_hook,
            post_hook=post_hook,
            warmup=warmup,
            rep=rep,
            do_bench=do_bench,
            cache_results=cache_results,
        )

    return decorate
