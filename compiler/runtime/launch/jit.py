"""``@jit``: a Python function as a kernel that compiles itself for the arguments it is launched with."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, overload

from ... import knobs
from ...errors import CalledOutside, CompilationError, LaunchError
from ...language.context import state
from ...launch_recipe import LaunchRecipe
from ...python_text import remember
from ...source.kernel import KernelSource
from ..arrays.arguments import readers, tensor_classes
from ..eager.launch import InterpretedLaunch, StandInLaunch
from ..variant.specialization import function_name, functions
from .binding import MISSING, Ending, make_binder
from .bound import Relaunch
from .called import CalledKernel
from .compiled import CompiledKernel
from .description import DERIVED, Variants
from .grid import Grid, GridFunction
from .hooks import installed
from .kernel import Launch, Prepared, Specialization
from .launcher import Warm, compile_for_launch, compile_later, prepare
from .pending import PendingKernel, active_mode
from .specialize import describes, refuse_described, specialize
from .stand_in import standing
from .watch import Watch

LaunchMetadata = Callable[..., Mapping[str, object]]
Names = Iterable[int | str]


class JITFunction(CalledKernel):
    """A kernel. Launch it with ``kernel[grid](*args, **constexprs, num_warps=4)``.

    Each combination of argument types, alignments, compile-time values and schedule is compiled once, kept in memory
    and on disk. Launching returns the CompiledKernel (None under the interpreter). What each schedule option does:
    :class:`~...options.Schedule`.
    """

    def __init__(
        self,
        kernel: Callable[..., object] | KernelSource,
        *,
        version: object = None,
        repr: Callable[[Specialization], str] | None = None,
        launch_metadata: LaunchMetadata | None = None,
        do_not_specialize: Names = (),
        do_not_specialize_on_alignment: Names = (),
        debug: bool | None = None,
        noinline: bool = False,
    ) -> None:
        self.fn: types.FunctionType | None = None
        if isinstance(kernel, types.FunctionType):
            self.fn = kernel
            remember(kernel)
            functools.update_wrapper(self, kernel)
            functions[function_name(self)] = self
        elif isinstance(kernel, KernelSource):
            self.__dict__["source"] = kernel
            self.__name__ = kernel.name
        else:
            raise LaunchError(
                f"a kernel is made of a function, not of {kernel!r}",
                hint="put @jit above a function written in the kernel language",
            )
        self.version = version
        self._repr = repr
        self.launch_metadata = launch_metadata
        self.noinline = noinline
        self.pre_run_hooks: list[Callable[..., object]] = []
        self._debug = debug
        self._unspecialized = set(do_not_specialize)
        self._unaligned = set(do_not_specialize_on_alignment)
        self._variants: dict[object, Prepared] = {}
        self._warmed: dict[object, Warm] = {}
        self.recipes: dict[str, LaunchRecipe] = {}
        self.cache = Variants(self._variants, self._warmed, self.recipes)
        self._seen_epoch = [-1]
        self._watched: list[Watch] = []
        #: Globals that the kernel, once compiled, counts on; see :attr:`Watch.values`.
        self.used_global_vals: dict[tuple[str, int], tuple[object, dict[str, object]]] = {}
        self._interpret = knobs.interpret.get()

    # ---- what it is ------------------------------------------------------------------------------------------

    @functools.cached_property
    def source(self) -> KernelSource:
        """The kernel's source; raises CompilationError where it cannot be read, unless the interpreter does without."""
        if self.fn is None:
            raise TypeError("a kernel has a function or a source")
        try:
            return KernelSource.from_function(self.fn)
        except CompilationError:
            if not (knobs.interpret.get() or self._interpret):
                raise
            return KernelSource.from_signature(self.fn)

    def python(self) -> types.FunctionType | None:
        """The decorated function; None for a kernel made of text."""
        return self.fn

    def _unsafe_update_src(self, text: str) -> None:
        """Give the kernel another text; its globals and closure stay those of the function.

        Triton's name. It is unsafe in that variants compiled before are forgotten, while kernels that were compiled
        with this one inlined keep the text that it had.
        """
        if self.fn is None:
            raise LaunchError(f"{self.__name__} is a kernel made of text", hint="make another one of the new text")
        self.__dict__["source"] = KernelSource.from_replaced_text(text, self.fn)
        for derived in (*DERIVED, "_launch", "_bound", "_warm"):
            self.__dict__.pop(derived, None)
        self._watched.clear()
        self.cache.clear()

    # ---- launching -------------------------------------------------------------------------------------------

    def __getitem__(self, grid: Grid | GridFunction) -> Callable[..., CompiledKernel | None]:
        """The kernel on a grid, ready to be called with its arguments."""
        if grid is None or self.pre_run_hooks:  # no method can be bound to None; the launch says what a grid is
            return functools.partial(self._launch_with_hooks, grid)
        return types.MethodType(self._launch, grid)  # made and called in 0.14 us, partial in 0.21

    def run(
        self, *args: object, grid: Grid | GridFunction, warmup: bool = False, **kwargs: object
    ) -> CompiledKernel | PendingKernel | None:
        """Launch, or only compile when ``warmup`` is set."""
        if warmup:
            return self.warmup(*args, grid=grid, **kwargs)
        launched: CompiledKernel | None = self._launch_with_hooks(grid, *args, **kwargs)
        return launched

    def _launch_with_hooks(self, grid: Any, /, *args: object, **kwargs: object) -> Any:
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        return self._launch(grid, *args, **kwargs)

    def warmup(
        self, *args: object, grid: Grid | GridFunction | None = None, **kwargs: object
    ) -> CompiledKernel | PendingKernel:
        """Compile for these arguments without launching: the variant that a launch with them runs. Instead of arrays,
        types may be given: ``"*f32:16"``, or a dtype for a pointer to it; what they leave open counts as fitting. In an
        :class:`AsyncCompileMode` it does not wait."""
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        mode = active_mode.get()
        if mode is None:
            compiled: CompiledKernel = self._warm(grid, *args, **kwargs)
            return compiled
        arguments, options = self.bind(args, kwargs)
        return compile_later(self, specialize(self, arguments, options, placeholders=True), mode)

    def specialized(
        self, args: Sequence[object], kwargs: Mapping[str, object], grid: Grid | GridFunction | None = None
    ) -> Launch:
        """The specialisation that a launch with these arguments runs, on that grid if one is given; raises LaunchError
        where they do not fit."""
        arguments, options = self.bind(args, kwargs)
        launch = specialize(self, arguments, options)
        if grid is None:
            return launch
        return launch.on(grid({**arguments, **options}) if callable(grid) else grid)

    def relauncher(self, grid: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> Relaunch:
        """What a launch with these arguments does once everything about them is known; pre-run hooks are called at
        every launch."""
        relaunch: Relaunch = self._bound(grid, *args, **kwargs)
        hooks = self.pre_run_hooks

        def with_hooks() -> CompiledKernel | None:
            for hook in hooks:
                hook(*args, **kwargs)
            return relaunch()

        return with_hooks

    @functools.cached_property
    def _launch(self) -> Callable[..., Any]:
        return self._binder("launch")

    @functools.cached_property
    def _bound(self) -> Callable[..., Any]:
        return self._binder("bind")

    @functools.cached_property
    def _warm(self) -> Callable[..., Any]:
        return self._binder("warm")

    def _binder(self, ending: Ending) -> Callable[..., Any]:
        warm = ending == "warm"
        namespace = {
            "readers": readers,
            "tensors": tensor_classes,
            "variants": self._warmed if warm else self._variants,
            "prepare": self._prepare_warm if warm else self._prepare,
            "explain": self._warm_unread if warm else self._explain,
            "refresh": self._refresh,
            "epoch": knobs.epoch,
            "seen_epoch": self._seen_epoch,
            "watched": self._watched,
            "check_watched": self._check_watched,
            "installed": installed,
        }
        return make_binder(self.__name__, self.parameters, namespace, ending)

    def _refresh(self) -> None:
        """A knob may have changed in a scope: look again at those that variants depend on."""
        self._variants.clear()
        self._warmed.clear()
        self._seen_epoch[0] = knobs.epoch.value

    def _check_watched(self) -> None:
        for watch in self._watched:
            watch.check()

    def _prepare(
        self,
        key: object,
        args: tuple[object, ...],
        extra: tuple[object, ...],
        options: dict[str, object],
        grid: object,
    ) -> Prepared:
        """The launcher for argument types seen for the first time, on this grid."""
        if extra:
            self._refuse_extra(extra)
        self._check_options(options)
        arguments = dict(zip(self.arg_names, args, strict=True))
        refuse_described(self, arguments)
        launch = specialize(self, arguments, options)
        if standing.value is not None:
            made: Prepared = StandInLaunch(self, launch, standing.value)
        elif self.interpreted:
            made = InterpretedLaunch(self, launch)
        else:
            made = prepare(self, launch.on(grid), lambda: specialize(self, arguments, options))
            self._watch()
        self._variants[key] = made
        return made

    def _watch(self) -> None:
        """From now on every launch and warm-up looks whether the globals that variants count on are the same."""
        if not self._watched and (watch := Watch(self.source)).entries:
            self._watched.append(watch)
            self.used_global_vals = watch.values

    def _prepare_warm(
        self,
        key: object,
        args: tuple[object, ...],
        extra: tuple[object, ...],
        options: dict[str, object],
        grid: object = None,
    ) -> Callable[[tuple[Any, ...]], CompiledKernel]:
        """What gives the variant for argument types seen for the first time; ``grid`` means nothing to it."""
        if extra:
            self._refuse_extra(extra)
        arguments = dict(zip(self.arg_names, args, strict=True))
        if describes(self, arguments):  # types as text are read as constants: every one anew
            compiled = compile_for_launch(self, specialize(self, arguments, options, placeholders=True), warmup=True)
            return lambda values: compiled
        made = self._warmed[key] = Warm(self, specialize(self, arguments, options))
        self._watch()
        return made

    def _warm_unread(
        self,
        problem: LaunchError | RuntimeError,
        args: tuple[object, ...],
        extra: tuple[object, ...],
        options: dict[str, object],
    ) -> CompiledKernel:
        """The variant for arguments of which some cannot be read, because they only say what will be passed."""
        if any(value is MISSING for value in args) or not describes(self, dict(zip(self.arg_names, args, strict=True))):
            self._explain(problem, args, extra, options)
        return self._prepare_warm(None, args, extra, options)(())

    # ---- the rest of Triton's interface --------------------------------------------------------------------------

    @property
    def interpreted(self) -> bool:
        """Whether launches run under the interpreter: the Python function itself, or what stands in for devices."""
        return knobs.interpret.get() or self._interpret or standing.value is not None

    @property
    def debug(self) -> bool:
        """Whether device assertions are compiled in: if the decorator or the knob says so."""
        return bool(self._debug) or knobs.debug.get()

    def add_pre_run_hook(self, hook: Callable[..., object]) -> None:
        """Call ``hook`` before every launch and warm-up, with the arguments and options as they are given there."""
        self.pre_run_hooks.append(hook)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """A call from a kernel that runs as Python under the interpreter; compiled kernels inline instead.

        Raises:
            CalledOutside: the call is not in a kernel; kernels are launched on a grid.
        """
        if state.context is None:
            raise CalledOutside(
                f"{self.__name__} is called, and calls of jit functions work inside kernels only",
                hint=f"launch it on a grid: {self.__name__}[(1,)](...)",
            )
        return state.context.call(self, args, kwargs)

    def __repr__(self) -> str:
        return f"<JITFunction {self.__name__}>"


@overload
def jit(fn: Callable[..., object]) -> JITFunction: ...


@overload
def jit(
    fn: None = None,
    *,
    version: object = None,
    repr: Callable[[Specialization], str] | None = None,
    launch_metadata: LaunchMetadata | None = None,
    do_not_specialize: Names = (),
    do_not_specialize_on_alignment: Names = (),
    debug: bool | None = None,
    noinline: bool = False,
) -> Callable[[Callable[..., object]], JITFunction]: ...


def jit(
    fn: Callable[..., object] | None = None, **options: Any
) -> JITFunction | Callable[[Callable[..., object]], JITFunction]:
    """Decorator that makes a function of the kernel language a kernel, or a function that kernels may call.

    ``do_not_specialize``: parameters (names or positions) whose value shall not lead to new variants.
    ``launch_metadata(grid, metadata, args)``: what profilers record for a launch. ``repr(specialization)``: the name
    that they show and the code has, made of its ``signature`` and ``constants``; variants of other names are compiled
    and kept for themselves. ``debug``: compile ``tl.device_assert`` (the knob
    TRITON_DEBUG does it for all kernels). ``noinline`` is accepted and changes nothing: kernels inline what they call.
    ``version`` is kept for programs that read it.
    """
    if fn is not None:
        return JITFunction(fn, **options)
    return lambda function: JITFunction(function, **options)
