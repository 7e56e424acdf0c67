"""Fixtures: sessions that never leak into the next test, launches without a compiler, a GPU source without a GPU."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import deuteron.profiler as proton
from deuteron.compiler.runtime.launch.hooks import LaunchEvent, launch_with_hooks
from deuteron.profiler import Profile
from deuteron.profiler.recorder import recorder
from deuteron.profiler.session import registry
from deuteron.profiler.sources import records

# Beside this file: profiles that several test modules make up.
sys.path.insert(0, str(Path(__file__).parent))
from gpu_stand_in import FakeGpu  # noqa: E402
from viewed_profiles import H100, kernel  # noqa: E402

DATA = Path(__file__).parent / "data"


@pytest.fixture
def h200_profile() -> Path:
    return DATA / "proton-h200.hatchet"


@pytest.fixture
def profile() -> Profile:
    """ROOT > A > {gemm 3 ms, copy 1 ms}, B > copy 4 ms, and bookkeeping frames that are not shown."""
    profile = Profile()
    profile.device("CUDA", 0, **H100)
    kernel(profile, "A", "gemm", time_ns=3_000_000, flops8=1513e9, bytes=3_352_320_000)
    kernel(profile, "A", "copy", time_ns=1_000_000, count=4, bytes=1_000_000_000)
    kernel(profile, "B", "copy", time_ns=4_000_000, bytes=500_000_000)
    kernel(profile, "A", "__proton_launch_metadata:gemm", "helper", time_ns=9_000_000)
    profile.node(("empty", "emptier"))
    return profile


@pytest.fixture(autouse=True)
def no_sessions_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test runs in its own folder, begins with session 0 and ends without sessions."""
    monkeypatch.chdir(tmp_path)
    registry._next = 0
    yield
    for session in list(registry.sessions.values()):
        session.active = False
        registry.remove(session)
        recorder.session_removed(session)
    registry.command_line = False
    registry._next = 0


@pytest.fixture
def launch() -> Callable[..., None]:
    """Launches a kernel that does nothing: ``launch("name", metadata=..., device="cpu")``."""

    def do(
        name: str,
        metadata: dict[str, object] | Callable[[], dict[str, object]] | None = None,
        device: str = "cpu",
        duration_ns: int = 1000,
        body: Callable[[], None] = lambda: None,
    ) -> None:
        evaluate = metadata if callable(metadata) else lambda: dict(metadata or {})
        event = LaunchEvent(
            name=name,
            device=SimpleNamespace(name=device),  # type: ignore[arg-type]
            stream=0,
            grid=(1, 1, 1),
            metadata=evaluate,
        )

        def run() -> None:
            body()
            if device == "cpu":
                event.start_ns = time.perf_counter_ns()
                event.end_ns = event.start_ns + duration_ns

        launch_with_hooks(event, run)

    return do


def find(node: dict, *path: str) -> dict:
    """The node at ``path`` in a literal."""
    for name in path:
        matches = [child for child in node["children"] if child["frame"]["name"] == name]
        assert len(matches) == 1, f"{name!r} in {[c['frame']['name'] for c in node['children']]}"
        node = matches[0]
    return node


@pytest.fixture
def tree() -> Callable[..., dict]:
    """``tree("A", "B")`` is the node under ROOT at that path in session 0 (or in a file's literal)."""

    def at(*path: str, literal: list | None = None, session: int = 0) -> dict:
        data = literal if literal is not None else proton.data.get(session)
        return find(data[0], *path)

    return at


def record_bytes(size: int, fields: Sequence[tuple[str, str, int]], **values: int) -> bytes:
    """One synthetic record of ``size`` bytes; every byte that is not a field is 0xEE."""
    raw = np.full(size, 0xEE, np.uint8)
    layout = {name: (form, offset) for name, form, offset in fields}
    for name, value in {"graphId": 0, **values}.items():
        form, offset = layout[name]
        width = np.dtype(form).itemsize
        raw[offset : offset + width] = np.frombuffer(np.array(value, form).tobytes(), np.uint8)
    return raw.tobytes()


@pytest.fixture
def synthetic() -> SimpleNamespace:
    """Builders of CUPTI records as bytes."""

    def buffer(*parts: bytes) -> np.ndarray:
        return np.frombuffer(b"".join(parts), np.uint8)

    def kernel(size: int, **values: int) -> bytes:
        return record_bytes(size, records.KERNEL_FIELDS, **{"kind": records.KIND_CONCURRENT_KERNEL, **values})

    def copy(size: int, **values: int) -> bytes:
        return record_bytes(size, records.COPY_FIELDS, **values)

    return SimpleNamespace(kernel=kernel, copy=copy, buffer=buffer)


@pytest.fixture
def gpu(synthetic: SimpleNamespace) -> FakeGpu:
    """A source of GPU records without a GPU, which records from now on."""
    fake = FakeGpu(synthetic)
    recorder.start_gpu(required=True, source=fake)
    return fake
