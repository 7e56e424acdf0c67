"""``@autotune``: time several configurations on the first launch of each kind, then use the fastest."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ... import knobs
from ...errors import IllegalSchedule, LaunchError
from ..arrays.contents import saved, zero
from ..device import Device
from ..devices import device_of
from ..launch.bound import Relaunch
from ..launch.compiled import CompiledKernel
from ..launch.hooks import SearchDone, installed
from ..launch.kernel import Kernel, Launch
from ..launch.launcher import compile_for_launch
from ..launch.runner import Runner
from ..variant.variant import nearest
from .checks import by_name, list_of, milliseconds
from .config import Config
from .pruning import most_predicted, promising, pruned
from .resets import arrays_named, reset_only, restored
from .results import FAILED, Timing, TuningResults
from .search import BenchmarkFunction, Candidate, Search
from .tuning_key import TuningKey, glance, tuning_key

T = TypeVar("T")
#: What a message advises where a list names no parameters.
_NAMES = "give a list of names of parameters"


class Autotuner(Runner):
    """A kernel with configurations. Launches as the kernel itself does, without the tuned parameters.

    After a launch ``best_config`` is the configuration it used and ``cache`` maps every tuning key to its best
    configuration. ``configs_timings`` holds the last search's median, 20th and 80th percentile in ms: of many launches
    for those that came close, of few for those that were clearly behind. ``failures`` says why configurations cannot
    run.

    The constructor takes what Triton's takes, in its order, for classes that extend it; ``arg_names`` are the kernel's,
    which is asked for them, and on GPUs launches are timed by events with and without ``use_cuda_graph``. Such classes
    find in ``nargs`` the positional arguments of the launch that is under way.
    """

    def __init__(
        self,
        fn: Runner | Kernel,
        arg_names: Sequence[str],
        configs: Sequence[Config],
        key: Sequence[str],
        reset_to_zero: Sequence[str] | None = None,
        restore_value: Sequence[str] | None = None,
        pre_hook: Callable[..., object] | None = None,
        post_hook: Callable[..., object] | None = None,
        prune_configs_by: Mapping[str, Any] | None = None,
        warmup: float | None = None,
        rep: float | None = None,
        use_cuda_graph: bool = False,
        do_bench: BenchmarkFunction | None = None,
        cache_results: bool = False,
    ) -> None:
        super().__init__(fn)
        of = f"autotune of {self.__name__}:"
        configs = list_of(Config, configs or (), f"{of} configs", "give a list of Config({...})")
        self.configs = configs or [Config({})]
        self.keys = list_of(str, key, f"{of} key", _NAMES)
        self.cache: dict[TuningKey, Config] = {}
        #: The tuning key of launches that have been seen, by :func:`.tuning_key.glance`.
        self._seen: dict[object, TuningKey] = {}
        self.best_config: Config | None = None
        self.configs_timings: dict[Config, Timing] = {}
        self.failures: dict[Config, str] = {}
        self.bench_time = 0.0
        self.reset_to_zero = list_of(str, reset_to_zero or (), f"{of} reset_to_zero", _NAMES)
        self.restore_value = list_of(str, restore_value or (), f"{of} restore_value", _NAMES)
        self.user_defined_pre_hook, self.user_defined_post_hook = pre_hook is not None, post_hook is not None
        self.pre_hook: Callable[..., object] = self._reset_named if pre_hook is None else pre_hook
        self.post_hook: Callable[..., object] = _do_nothing if post_hook is None else post_hook
        self.nargs: dict[str, object] | None = None
        self.warmup_ms = milliseconds(25.0 if warmup is None else warmup, f"{of} warmup")
        self.rep_ms = milliseconds(100.0 if rep is None else rep, f"{of} rep")
        #: Triton's names of what was asked for, which PyTorch looks at.
        self.num_warmups, self.num_reps, self.use_cuda_graph = warmup, rep, use_cuda_graph
        self.do_bench = do_bench
        self.cache_results = cache_results
        prune = by_name(prune_configs_by or {}, f"{of} prune_configs_by", "give its functions by name")
        self.early_config_prune = prune.pop("early_config_prune", None)
        self.perf_model = prune.pop("perf_model", None)
        everything = prune.pop("configs_top_k", 1.0)  # what PyTorch calls ``top_k`` where it changes configurations
        self.configs_top_k = prune.pop("top_k", everything)
        for name in prune:
            known = ("early_config_prune", "perf_model", "top_k")
            raise LaunchError(f"prune_configs_by has no entry {name!r}", hint=nearest(name, known))

    # ---- launching -------------------------------------------------------------------------------------------

    def run(self, *args: object, grid: Any, warmup: bool = False, **kwargs: object) -> object:
        """Launch with the best configuration for these arguments, searching for it if it is not known."""
        self.nargs = self.base_fn.named(args)
        arguments = {**self.nargs, **kwargs}
        if warmup:
            self._check_names()
            return [
                self.fn.run(*args, grid=grid, warmup=True, **kwargs, **config.all_kwargs())
                for config in self.prune(args, kwargs)
            ]
        config = self.best_config = self._choose(args, kwargs, grid, arguments)
        if config.pre_hook is not None:
            config.pre_hook({**arguments, **config.all_kwargs()})  # which may change the configuration
        return self.fn.run(*args, grid=grid, **kwargs, **config.all_kwargs())

    def relauncher(self, grid: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> Relaunch:
        """What a launch does with the best configuration for these arguments, which is searched for if it is not known;
        the configuration's ``pre_hook`` is called now, as it may shape arguments, and at every launch."""
        arguments = {**self.base_fn.named(args), **kwargs}
        config = self.best_config = self._choose(args, kwargs, grid, arguments)
        everything = {**arguments, **config.all_kwargs()}
        pre_hook = config.pre_hook
        if pre_hook is None:
            return super().relauncher(grid, args, {**kwargs, **config.all_kwargs()})
        pre_hook(dict(everything))
        relaunch = super().relauncher(grid, args, {**kwargs, **config.all_kwargs()})

        def launch() -> CompiledKernel | None:
            pre_hook(dict(everything))
            return relaunch()

        return launch

    def _choose(
        self,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        grid: Any,
        arguments: dict[str, object],
    ) -> Config:
        seen = glance(arguments, self.keys, len(self.configs))
        if seen in self._seen and (known := self.cache.get(self._seen[seen])) is not None:
            return known
        self._check_names()
        self._check_conflicts(kwargs)
        if len(self.configs) == 1:
            return self.configs[0]
        key = self.tuning_key(arguments)
        if seen is not None:
            self._seen[seen] = key
        if key not in self.cache:
            candidates = self.prune(args, kwargs)
            if self.base_fn.interpreted or len(candidates) == 1:  # timing an interpreter says nothing
                self.cache[key] = candidates[0]
                self._leave(arguments, candidates[0])
            else:
                self.cache[key] = self._search(candidates, key, args, kwargs, grid, arguments)
        return self.cache[key]

    def tuning_key(self, arguments: Mapping[str, object]) -> TuningKey:
        """What a search is done once for, as :func:`.tuning_key.tuning_key` has it."""
        return tuning_key(arguments, self.keys, self.arg_names)

    def _check_names(self) -> None:
        """Arrays to be reset must be the kernel's. A key may be left from another version of it, as in Triton: that is
        said, since one that is misspelled makes all values share a configuration. Checked late, when the kernel's
        source is read anyway."""
        for name in self.keys:
            if name not in self.arg_names:
                warnings.warn(f"{self._wrong_name('key', name)}: {nearest(name, self.arg_names)}", stacklevel=2)
        for what, names in (("reset_to_zero", self.reset_to_zero), ("restore_value", self.restore_value)):
            for name in names:
                if name not in self.arg_names:
                    raise LaunchError(self._wrong_name(what, name), hint=nearest(name, self.arg_names))

    def _wrong_name(self, what: str, name: str) -> str:
        return f"autotune of {self.__name__}: {what} names {name!r}, which is not a parameter"

    def _check_conflicts(self, kwargs: Mapping[str, object]) -> None:
        for config in self.configs:
            both = sorted(set(config.all_kwargs()) & set(kwargs))
            if both:
                raise LaunchError(
                    f"autotune of {self.__name__}: {', '.join(both)} is given in the launch and by the configurations",
                    hint="leave it to one of them",
                )

    # ---- pruning ---------------------------------------------------------------------------------------------

    def prune_configs(self, kwargs: Mapping[str, object]) -> list[Config]:
        """The configurations worth timing for the launch under way, whose keywords are ``kwargs``."""
        return self.prune(list((self.nargs or {}).values()), kwargs)

    def prune(self, args: Sequence[object], kwargs: Mapping[str, object]) -> list[Config]:
        """The configurations worth timing, as ``prune_configs_by`` says; never none.

        Positional arguments reach the user's functions by name in ``named_args``, the others as keywords, as in Triton.

        Raises:
            LaunchError: ``early_config_prune`` left nothing, or a function gave something else than it should.
        """
        named_args = self.base_fn.named(args)
        left = self.configs
        if self.early_config_prune is not None:
            left = pruned(self.__name__, left, self.early_config_prune, named_args, kwargs)
        if self.perf_model is None:
            return left
        most = most_predicted(self.__name__, self.configs_top_k, len(self.configs))
        return promising(self.__name__, left, self.perf_model, most, {**named_args, **kwargs})

    # ---- searching -------------------------------------------------------------------------------------------

    def _search(
        self,
        candidates: list[Config],
        key: TuningKey,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        grid: Any,
        arguments: dict[str, object],
    ) -> Config:
        start = time.perf_counter()
        device = device_of(arguments)
        results = TuningResults(self.base_fn, key, device)
        kept = [c for c in candidates if self._persistent(c)]
        timings, finalists = results.recall(kept)
        fresh = [c for c in candidates if c not in timings]
        restore = self._of_each("restore_value", arguments, saved) if fresh else []
        search = self._made_search(device, arguments, restore)
        self.failures = search.failures
        with restored(restore):
            search.run({c: self._candidate(c, args, kwargs, grid, arguments) for c in fresh})
        results.remember({c: search.timings[c] for c in fresh if c in kept}, search.finalists)
        contenders = [*(finalists or timings), *search.finalists]
        timings |= search.timings
        self.configs_timings = timings
        self.bench_time = time.perf_counter() - start
        best = min(contenders or candidates, key=lambda c: timings[c])
        if timings[best] == FAILED:
            lines = [f"  {c}: {self.failures.get(c, 'failed')}" for c in candidates]
            raise LaunchError(
                f"autotune of {self.__name__}: none of {len(candidates)} configurations can run:\n" + "\n".join(lines),
                hint="add configurations with smaller blocks",
            )
        if fresh:  # else nothing was launched that arrays would have to be rid of
            self._leave(arguments, best)
        self._print(key, best, timings, reused=len(candidates) - len(fresh))
        installed.tell(SearchDone(self.base_fn, key, best, timings, self.bench_time if fresh else None))
        return best

    def _bench(self, *args: object, config: Config, grid: Any = (1,), **kwargs: object) -> Timing:
        """Time one configuration alone: median, 20th and 80th percentile in ms; infinite where it cannot run."""
        self._check_conflicts(kwargs)
        arguments = {**self.base_fn.named(args), **kwargs}
        restore = self._of_each("restore_value", arguments, saved)
        search = self._made_search(device_of(arguments), arguments, restore)
        with restored(restore):
            search.run({config: self._candidate(config, args, kwargs, grid, arguments)})
        self._reset(arguments, ())
        return search.timings[config]

    def _made_search(
        self, device: Device, arguments: Mapping[str, object], restore: Sequence[Callable[[], object]]
    ) -> Search:
        return Search(
            device,
            warmup_ms=self.warmup_ms,
            rep_ms=self.rep_ms,
            before=(lambda: self._reset(arguments, restore)) if self.reset_to_zero or restore else None,
            do_bench=self.do_bench,
        )

    def _candidate(
        self,
        config: Config,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        grid: Any,
        arguments: dict[str, object],
    ) -> Candidate:
        """What the search needs of a configuration: compiling it, and one launch with it, hooks included."""
        options = config.all_kwargs()
        everything = {**arguments, **options}
        pre_hook = None if self.pre_hook == self._reset_named else self.pre_hook  # else the search does it, untimed

        def call() -> object:
            if config.pre_hook is not None:
                config.pre_hook(dict(everything))
            if pre_hook is not None:
                pre_hook(everything)
            try:
                launched = self.fn.run(*args, grid=grid, **kwargs, **options)
            except Exception as error:
                self.post_hook(everything, exception=error)
                raise
            self.post_hook(everything, exception=None)
            return launched

        if config.pre_hook is not None:
            config.pre_hook(dict(everything))  # it may shape arguments, such as the block of a descriptor
        launch: Launch | IllegalSchedule
        try:
            launch = self.specialized(args, {**kwargs, **options}, grid)
        except IllegalSchedule as error:
            launch = error

        def build() -> object:
            if isinstance(launch, IllegalSchedule):
                raise launch
            return compile_for_launch(self.base_fn, launch)

        return Candidate(
            build,
            call,
            lambda error: self.post_hook(everything, exception=error),
        )

    def _leave(self, arguments: Mapping[str, object], best: Config) -> None:
        """Leave the arrays as the launch behind a search shall find them, also where one candidate needed no timing."""
        self._reset(arguments, ())
        if self.user_defined_pre_hook:
            reset_only(self.pre_hook, {**arguments, **best.all_kwargs()})

    def _reset(self, arguments: Mapping[str, object], restore: Sequence[Callable[[], object]]) -> None:
        self._of_each("reset_to_zero", arguments, zero)
        for put_back in restore:
            put_back()

    def _of_each(self, what: str, arguments: Mapping[str, object], of: Callable[[Any], T]) -> list[T]:
        """What ``of`` gives for each array that ``reset_to_zero`` or ``restore_value`` names; errors name it, too."""
        made: list[T] = []
        for name in getattr(self, what):
            try:
                made += map(of, arrays_named(name, arguments))
            except LaunchError as error:
                raise LaunchError(f"autotune of {self.__name__}: {what} names {name!r}, but {error.message}") from error
        return made

    def _reset_named(self, arguments: Mapping[str, object], reset_only: bool = False) -> None:
        """The ``pre_hook`` where none was given: the arrays of ``reset_to_zero`` are zero."""
        self._reset(arguments, ())

    def _persistent(self, config: Config) -> bool:
        wanted = self.cache_results or knobs.cache_autotuning.get()
        return wanted and config.pre_hook is None and not self.user_defined_pre_hook

    def _print(self, key: TuningKey, best: Config, timings: Mapping[Config, Timing], reused: int) -> None:
        if not knobs.print_autotuning.get():
            return
        print(
            f"Autotuning kernel {self.__name__},\nwith key as {key},\n"
            f"finished after {self.bench_time:.2f}s ({len(timings)} configurations, {reused} from the cache),\n"
            f"best config selected: {best};"
        )


def _do_nothing(arguments: Mapping[str, object], exception: Exception | None = None) -> None:
    """The ``post_hook`` where none was given."""


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
    use_cuda_graph: bool = False,
    do_bench: BenchmarkFunction | None = None,
    cache_results: bool = False,
) -> Callable[[Runner | Kernel], Autotuner]:
    """Decorator: on the first launch for each value of ``key``, time every configuration and keep the fastest.

    ``prune_configs_by``: ``early_config_prune(configs, named_args, **kwargs)``, ``perf_model(**args)`` with ``top_k``
    (a number or a share). ``reset_to_zero`` and ``restore_value`` name arrays (or arguments that are None) to reset
    between launches of a search and after it. ``pre_hook(args, reset_only=False)`` is called before each of these
    launches, and after the last one with ``reset_only=True``. Candidates compile in parallel and are timed in
    alternating rounds; those clearly behind leave early, and medians decide. That takes at most ``warmup`` milliseconds
    of wall time, and ``rep`` a configuration, with cache flushes and resets, except that each is timed three times.
    ``do_bench(call, quantiles=...)`` replaces the timing. ``cache_results`` (or TRITON_CACHE_AUTOTUNING) keeps timings
    on disk.
    """

    def decorate(fn: Runner | Kernel) -> Autotuner:
        return Autotuner(
            fn,
            (),  # the kernel is asked when it is first launched
            configs,
            key,
            prune_configs_by=prune_configs_by,
            reset_to_zero=reset_to_zero,
            restore_value=restore_value,
            pre_hook=pre_hook,
            post_hook=post_hook,
            warmup=warmup,
            rep=rep,
            use_cuda_graph=use_cuda_graph,
            do_bench=do_bench,
            cache_results=cache_results,
        )

    return decorate
