"""Shared by the runtime's tests: a private cache, launches that are recorded instead of run, or watched."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deuteron.compiler.launch_recipe import LaunchRecipe
from deuteron.compiler.runtime.device import Device
from deuteron.compiler.runtime.launch import launcher
from deuteron.compiler.runtime.launch.hooks import LaunchEvent, add_launch_hook, remove_launch_hook
from deuteron.compiler.runtime.launch.jit import JITFunction
from deuteron.compiler.runtime.variant.metadata import KernelMetadata
from deuteron.compiler.runtime.variant.variant import Variant

sys.path.insert(0, str(Path(__file__).parent))
from fake_driver import FakeDriver, FakeFunctions  # noqa: E402 - beside this file


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEUTERON_HOME", str(tmp_path / "home"))
    for name in ("TRITON_INTERPRET", "TRITON_CACHE_DIR", "DEUTERON_CACHE_DIR", "TRITON_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home" / "cache"


@dataclass
class FakeLoaded:
    """Stands for a kernel in a device's memory; keeps what it is launched with."""

    kernel: FakeKernel
    device: Device

    def launch(self, grid: tuple[int, int, int], values: tuple[Any, ...], stream: Any) -> None:
        self.kernel.log.append((self.kernel.variant, grid, values))

    def bound(self, grid: tuple[int, int, int], values: tuple[Any, ...]) -> Any:
        return lambda stream: self.launch(grid, values, stream)

    def direct(self, *how: Any) -> None:
        return None

    def timed_launch(self, event: LaunchEvent, values: tuple[Any, ...], stream: Any) -> None:
        event.start_ns, event.end_ns = 1, 2
        self.launch(event.grid, values, stream)

    def stream(self, stream: int | None) -> int:
        return 7


@dataclass
class FakeKernel:
    """Stands for a compiled kernel."""

    variant: Variant
    log: list[tuple[Variant, tuple[int, int, int], tuple[Any, ...]]]
    launch_metadata: Any = None
    metadata: KernelMetadata = field(init=False)
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.variant.name
        schedule = self.variant.schedule
        recipe = LaunchRecipe(32 * schedule.num_warps)
        target, key = str(self.variant.target), self.variant.key
        self.metadata = KernelMetadata(self.name, target, key, schedule.num_warps, 1, 1, recipe)

    def loaded(self, device: Device) -> FakeLoaded:
        return FakeLoaded(self, device)


@dataclass
class Recorder:
    """What was compiled and what was launched."""

    compiled: list[Variant] = field(default_factory=list)
    launches: list[tuple[Variant, tuple[int, int, int], tuple[Any, ...]]] = field(default_factory=list)

    def compile(self, variant: Variant, known: Mapping[str, object]) -> FakeKernel:
        self.compiled.append(variant)
        return FakeKernel(variant, self.launches)

    @property
    def last(self) -> Variant:
        return self.launches[-1][0]

    def types(self) -> dict[str, str]:
        """The signature of the last launch, as text."""
        return {name: str(kind) for name, kind in self.last.signature.items()}


@pytest.fixture
def recorder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """Launches of the test module's kernels, each of which starts without variants."""
    made = Recorder()
    for value in vars(request.module).values():
        if isinstance(value, JITFunction):
            value.cache.clear()
            value._variants.clear()
    monkeypatch.setattr(launcher, "compile_if_fitting", made.compile)
    yield made


@contextmanager
def _watch_launches() -> Iterator[list[LaunchEvent]]:
    events: list[LaunchEvent] = []
    hook = SimpleNamespace(enter=events.append, exit=lambda event: None)
    add_launch_hook(hook)
    try:
        yield events
    finally:
        remove_launch_hook(hook)


@pytest.fixture
def watch_launches() -> Callable[[], AbstractContextManager[list[LaunchEvent]]]:
    """``with watch_launches() as events:`` collects the launches of the block, as a hook sees them."""
    return _watch_launches


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """A CUDA driver that notes what it is asked, with one GPU, ``cuda:0``."""
    made = FakeDriver()
    made.install(monkeypatch)
    return made


@pytest.fixture
def machine(driver: FakeDriver) -> Iterator[FakeFunctions]:
    """The driver's functions that machine code calls. What is made of them ends before they do."""
    yield driver.functions
    gc.collect()
