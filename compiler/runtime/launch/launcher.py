"""What a launch runs once its variant is known."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...launch_recipe import Guard, LaunchRecipe
from ...signature import flattened, is_hidden, scattered
from ..arrays.descriptor import spread
from ..devices import default_device, default_moves
from .bound import Relaunch
from .compiled import CompiledKernel, compile_if_fitting
from .grid import grid_of
from .guards import Guards, Spread
from .hooks import LaunchEvent, VariantRequest, described, installed, launch_with_hooks
from .kernel import Kernel, Launch, Prepared
from .loaded import Direct
from .pending import AsyncCompileMode, PendingKernel
from .recording import run_observed


def compile_for_launch(kernel: Kernel, launch: Launch, *, warmup: bool = False) -> CompiledKernel:
    """The compiled variant of a launch whose guards hold, as far as its arguments are known. ``warmup``: what listeners
    are told."""
    while True:
        found = _look_for(kernel, launch, warmup)
        broken = _recipe_of(found).broken_by(launch.known)
        if not (broken or isinstance(found, LaunchRecipe)):
            return found
        launch = launch.without(broken)


def compile_later(kernel: Kernel, launch: Launch, mode: AsyncCompileMode) -> PendingKernel | CompiledKernel:
    """The variant of a launch that :func:`compile_for_launch` gives, compiled by the mode's executor unless it is at
    hand or under way."""
    known = _at_hand(kernel, launch)
    if known is not None:
        return known

    def forget(pending: PendingKernel) -> None:
        for key in [key for key, held in list(kernel.cache.items()) if held is pending]:
            del kernel.cache[key]

    made = kernel.cache[launch.variant.key] = mode.begin(forget)
    made.begin(mode.executor, lambda: _compile_pending(kernel, launch, made))
    return made


def _at_hand(kernel: Kernel, launch: Launch) -> PendingKernel | CompiledKernel | None:
    """The variant of a launch, or what is under way and will be, as far as this process knows."""
    while True:
        found = kernel.cache.get(launch.variant.key)
        if isinstance(found, PendingKernel):
            return found
        recipe = kernel.recipes.get(launch.variant.key) if found is None else _recipe_of(found)
        broken = recipe.broken_by(launch.known) if recipe is not None else ()
        if not broken:
            return found
        launch = launch.without(broken)


def _compile_pending(kernel: Kernel, launch: Launch, made: PendingKernel) -> CompiledKernel:
    """What ``made`` promises. It goes on from a variant that does not fit to the next one, so that whoever asks
    meanwhile finds it, and compiles neither."""
    while True:
        key = launch.variant.key
        found = _make(kernel, launch, warmup=True)
        broken = _recipe_of(found).broken_by(launch.known)
        if not (broken or isinstance(found, LaunchRecipe)):
            return found
        launch = launch.without(broken)
        under_way = kernel.cache.setdefault(launch.variant.key, made)
        if kernel.cache.get(key) is made:  # now that the next one is known
            del kernel.cache[key]
        if under_way is not made:
            return compile_for_launch(kernel, launch, warmup=True)


def _look_for(kernel: Kernel, launch: Launch, warmup: bool = False) -> CompiledKernel | LaunchRecipe:
    """The compiled variant of a launch: from this process, the disk cache or the compiler; only how it would be
    launched where guards of it are known not to hold, and it is not at hand."""
    key = launch.variant.key
    while isinstance(found := kernel.cache.get(key), PendingKernel):
        found.result()
    if found is not None:
        return found
    recipe = kernel.recipes.get(key)
    return recipe if recipe and recipe.broken_by(launch.known) else _make(kernel, launch, warmup)


def _recipe_of(found: CompiledKernel | LaunchRecipe) -> LaunchRecipe:
    return found if isinstance(found, LaunchRecipe) else found.metadata.recipe


def _make(kernel: Kernel, launch: Launch, warmup: bool) -> CompiledKernel | LaunchRecipe:
    """What the disk cache or the compiler has for :func:`_look_for`, kept in this process."""
    request = VariantRequest(kernel, launch.variant, launch.device, warmup)
    installed.tell(request)
    found = compile_if_fitting(launch.variant, launch.known)
    if isinstance(found, LaunchRecipe):
        kernel.recipes[launch.variant.key] = found
        return found
    found.launch_metadata = kernel.launch_metadata
    kernel.cache[launch.variant.key] = found
    installed.tell(replace(request, metadata=found.metadata))
    return found


def prepare(kernel: Kernel, launch: Launch, again: Callable[[], Launch]) -> Prepared:
    """What launches one specialisation from now on; ``again`` specialises it once more."""
    made = make_launcher(kernel, launch)
    if launch.anywhere and default_moves():
        return DefaultDeviceLauncher(launch.device.name, made, lambda: make_launcher(kernel, again()))
    return made


def make_launcher(kernel: Kernel, launch: Launch) -> Launcher | GuardedLauncher:
    """What launches the variant of ``launch``, or one without those of its guards that arguments break. The variant is
    compiled unless it does not fit what is known of the arguments."""
    found = _look_for(kernel, launch)
    guards = _recipe_of(found).guards
    if guards or isinstance(found, LaunchRecipe):
        return GuardedLauncher(kernel, launch, guards)
    return Launcher(kernel, launch, found)


class Launcher:
    """Launches one variant on one device. Called with the grid, the machine values of all parameters that are not
    ``tl.constexpr``, and the arguments as the user gave them. Only ``direct`` checks ``guards``."""

    __slots__ = ("direct", "_kernel", "_loaded", "_pick", "_name", "_names", "_metadata", "_recipe")

    def __init__(
        self,
        kernel: Kernel,
        launch: Launch,
        compiled: CompiledKernel,
        guards: Sequence[Guard] = (),
        otherwise: Direct | None = None,
    ) -> None:
        self._kernel = compiled
        self._loaded = compiled.loaded(launch.device)
        self._pick = _picker(launch, len(kernel.run_time_names))
        self._name = compiled.name
        self._names = kernel.arg_names
        self._metadata = kernel.launch_metadata
        count = len(kernel.run_time_names)
        self._recipe = compiled.metadata.recipe
        self.direct = (
            None if self._recipe.scopes else self._loaded.direct(compiled, count, places_of(launch), guards, otherwise)
        )

    def chosen(self, grid: object, values: tuple[Any, ...]) -> Launcher:
        """The launcher for this grid and these values: this one."""
        return self

    def __call__(self, grid: object, values: tuple[Any, ...], arguments: tuple[object, ...]) -> CompiledKernel:
        shape = grid_of(grid)
        if 0 not in shape:
            if installed.hooks or self._recipe.scopes:
                self._observed(shape, self._pick(values) if self._pick else values, arguments)
            else:
                pick = self._pick
                self._loaded.launch(shape, values if pick is None else pick(values), None)
        return self._kernel

    def bound(self, grid: object, values: tuple[Any, ...], arguments: tuple[object, ...]) -> Relaunch:
        """The launch of a call, to be repeated."""
        shape, kernel = grid_of(grid), self._kernel
        if 0 in shape:
            return lambda: kernel
        passed = self._pick(values) if self._pick else values
        hooks = installed

        def observe() -> CompiledKernel:
            self._observed(shape, passed, arguments)
            return kernel

        if self._recipe.scopes:
            return observe
        run = self._loaded.bound(shape, passed)

        def launch() -> CompiledKernel:
            if hooks.hooks:
                return observe()
            run(None)
            return kernel

        return launch

    def _observed(
        self,
        shape: tuple[int, int, int],
        values: tuple[Any, ...],
        arguments: tuple[object, ...],
    ) -> None:
        loaded = self._loaded
        event = LaunchEvent(
            self._name,
            loaded.device,
            loaded.stream(None),
            shape,
            functools.partial(self._describe, shape, arguments),
            self._kernel,
            functools.partial(self._arguments, arguments),
        )
        launch_with_hooks(event, lambda: run_observed(loaded, self._recipe, event, values, None))

    def _arguments(self, arguments: tuple[object, ...]) -> dict[str, object]:
        given = spread(scattered(dict(zip(self._names, arguments, strict=True))))
        return {name: given[name] for name in self._kernel.signature}

    def _describe(self, shape: tuple[int, int, int], arguments: tuple[object, ...]) -> dict[str, object]:
        bound: Mapping[str, object] = dict(zip(self._names, arguments, strict=True))
        return described(self._name, self._metadata, shape, self._kernel.metadata, bound)


def _picker(launch: Launch, count: int) -> Spread | None:
    """A function from all ``count`` values of a launch to those that the variant takes, those of descriptors and tuples
    one by one; None where they are the same."""
    taken = list(places_of(launch, "v[{}]").values())
    if taken == [f"v[{place}]" for place in range(count)]:
        return None
    made: Spread = eval(f"lambda v: ({''.join(f'{text}, ' for text in taken)})")
    return made


def places_of(launch: Launch, value: str = "v{}") -> dict[str, str]:
    """The text of each argument of the signature, made of the texts of a launch's values, ``v0``, ``v1`` and so on."""
    paths = iter(launch.passed)
    texts: list[str] = []
    for name, kind in launch.signature.items():
        if is_hidden(name):  # part of the descriptor before it
            continue
        first, *rest = next(paths)
        text = value.format(first) + "".join(f"[{place}]" for place in rest)
        texts += [f"{text}[{i}]" for i in range(len(flattened(name, kind)))] if kind.block else [text]
    return dict(zip(launch.signature, texts, strict=True))


class GuardedLauncher:
    """Launches a variant with guards while arguments keep them, and otherwise one without those that they break; each
    is compiled when it is first needed."""

    __slots__ = ("direct", "_kernel", "_launch", "_promises", "_guards", "_holds", "_fitting", "_others")

    def __init__(self, kernel: Kernel, launch: Launch, promises: Sequence[Guard]) -> None:
        self._kernel = kernel
        self._launch = launch
        self._promises = promises
        spread = _picker(launch, len(kernel.run_time_names))
        self._guards = Guards(promises, list(launch.signature), spread)
        self._holds = self._guards.holds
        self._fitting: Launcher | None = None  # not loaded before arguments fit it
        self._others: dict[tuple[Guard, ...], Launcher | GuardedLauncher] = {}
        self.direct: Direct | None = None

    def __call__(self, grid: object, values: tuple[Any, ...], arguments: tuple[object, ...]) -> CompiledKernel:
        launcher = (self._holds(self._seen(grid, values)) and self._fitting) or self.chosen(grid, values)
        return launcher(grid, values, arguments)

    def bound(self, grid: object, values: tuple[Any, ...], arguments: tuple[object, ...]) -> Relaunch:
        """The launch of a call, to be repeated."""
        return self.chosen(grid, values).bound(grid, values, arguments)

    def _seen(self, grid: object, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return self._guards.seen(values, grid, self._launch.device.properties)

    def chosen(self, grid: object, values: tuple[Any, ...]) -> Launcher:
        """The launcher of the variant for this grid and these values."""
        seen = self._seen(grid, values)
        broken = self._guards.broken(seen)
        if not broken:
            if self._fitting is None:
                compiled = compile_for_launch(self._kernel, replace(self._launch, known={}))
                self._fitting = Launcher(self._kernel, self._launch, compiled, self._promises, self._otherwise)
                self.direct = self._fitting.direct
            return self._fitting
        found = self._others.get(broken)
        if found is None:
            other = replace(self._launch.without(broken), known=self._guards.named(seen)).on(grid)
            found = self._others[broken] = make_launcher(self._kernel, other)
        launcher = found.chosen(grid, values)
        if self.direct is None and launcher.direct is not None:
            self.direct = self._otherwise  # until arguments fit
        return launcher

    def _otherwise(self, grid: object, *values: Any) -> object:
        direct: Direct = self.chosen(grid, values).direct  # type: ignore[assignment] # all variants are on one device
        return direct(grid, *values)


class DefaultDeviceLauncher:
    """Launches of one specialisation that no array binds to a device: each runs on the default device of its moment,
    which programs may change from launch to launch. ``make`` prepares one for the default device."""

    __slots__ = ("_made", "_make")

    def __init__(self, device: str, made: Prepared, make: Callable[[], Prepared]) -> None:
        self._made = {device: made}
        self._make = make

    @property
    def direct(self) -> Direct | None:
        """That of the default device."""
        return self._here().direct

    def __call__(self, grid: object, values: tuple[Any, ...], arguments: tuple[object, ...]) -> CompiledKernel | None:
        return self._here()(grid, values, arguments)

    def bound(self, grid: object, values: tuple[Any, ...], arguments: tuple[object, ...]) -> Relaunch:
        """The launch of a call on the default device, to be repeated there."""
        return self._here().bound(grid, values, arguments)

    def _here(self) -> Prepared:
        name = default_device().name
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = self._make()
        return found


class Warm:
    """Gives the variant that a launch with these machine values runs, on a large grid: one with guards while they are
    kept, else one without those that are broken; each is compiled when it is first asked for. Nothing is loaded."""

    __slots__ = ("_kernel", "_launch", "_compiled", "_guards", "_others")

    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        self._kernel = kernel
        self._launch = launch
        found = _look_for(kernel, launch, warmup=True)
        self._compiled = None if isinstance(found, LaunchRecipe) else found
        spread = _picker(launch, len(kernel.run_time_names))
        self._guards = Guards(_recipe_of(found).argument_guards, list(launch.signature), spread)
        self._others: dict[tuple[Guard, ...], Warm] = {}

    def __call__(self, values: tuple[Any, ...]) -> CompiledKernel:
        if self._guards.holds(values):
            if self._compiled is None:
                self._compiled = compile_for_launch(self._kernel, replace(self._launch, known={}), warmup=True)
            return self._compiled
        broken = self._guards.broken(values)
        found = self._others.get(broken)
        if found is None:
            other = replace(self._launch.without(broken), known=self._guards.named(values))
            found = self._others[broken] = Warm(self._kernel, other)
        return found(values)
