"""Launches of instrumented kernels on a driver that runs nothing: the buffer that they pass, and what is read of it."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from fake_driver import FakeCode, FakeDriver, Launched, give_recipes

import deuteron
import deuteron.language as tl
import deuteron.profiler.language as pl
from deuteron.compiler.launch_recipe import LaunchRecipe
from deuteron.compiler.record_buffer import (
    COUNT,
    FIRST_CLOCK,
    HEAD_WORDS,
    LAST_CLOCK,
    MASK,
    TRACK_WORDS,
    WARPS,
    RecordForm,
    record_tag,
)
from deuteron.compiler.runtime.cuda.launch import load_on_cuda
from deuteron.compiler.runtime.launch.hooks import remove_launch_hook
from deuteron.compiler.runtime.launch.recording import recording
from deuteron.compiler.runtime.launch.records import RecordSettings
from deuteron.compiler.runtime.variant.metadata import KernelMetadata

TYPES = {"x": "*f32:16", "n": "i32"}


class DriverWithMemory(FakeDriver):
    """Also copies between the host and what was allocated; every launch leaves two records in the first track."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__(sizes=sizes)
        self.memory: dict[int, bytearray] = {}
        #: Of each buffer that a launch passed: its words, the mask of its rings, and the warps that record.
        self.seen: list[tuple[int, int, int]] = []

    def call(self, name: str, *arguments: Any) -> object:
        handle = super().call(name, *arguments)
        if name == "cuMemAlloc":
            self.memory[handle] = bytearray(b"\xee" * arguments[0])
        elif name == "cuMemcpyHtoD":
            address, source, size = arguments
            self.memory[address][:size] = ctypes.string_at(source, size)
        elif name == "cuMemcpyDtoDAsync":
            place, source, size, _ = arguments
            address = max(start for start in self.memory if start <= place)
            self.memory[address][place - address : place - address + size] = self.memory[source][:size]
        elif name == "cuMemcpyDtoH":
            target, address, size = arguments
            ctypes.memmove(target, bytes(self.memory[address]), size)
        return handle

    def cuLaunchKernelEx(self, *arguments: Any) -> int:  # noqa: N802
        code = super().cuLaunchKernelEx(*arguments)
        buffer = buffer_of(self.launches[-1])
        if buffer in self.memory:
            words = np.frombuffer(self.memory[buffer], np.int64)
            self.seen.append((len(words), int(words[MASK]), int(words[WARPS])))
            track = words[HEAD_WORDS:]
            track[COUNT] = 2
            track[FIRST_CLOCK], track[LAST_CLOCK] = 0, 25
            track[TRACK_WORDS : TRACK_WORDS + 2] = record_tag(0, True, 48) | 7, record_tag(0, False, 48) | 19
        return code


def buffer_of(launch: Launched) -> int:
    return int.from_bytes(launch.parameters[2], "little") if len(launch.parameters) > 2 else 0


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> DriverWithMemory:
    made = DriverWithMemory([8, 4, 8])
    made.install(monkeypatch)
    return made


@deuteron.jit
def scoped(x, n):
    with pl.scope("all"):
        tl.store(x + tl.arange(0, 32), 1.0, mask=tl.arange(0, 32) < n)


def test_a_launch_passes_a_buffer_and_reads_it(gpu, listener, monkeypatch) -> None:
    recipe = LaunchRecipe(160)
    give_recipes(monkeypatch, lambda denied: recipe)
    x = deuteron.get_device("cuda:0").empty((32,), "f32")
    recording.set(RecordSettings(8 * 64 * 5, (0, 4)))
    scoped[(3, 2)](x, 7)
    assert gpu.seen[-1] == (HEAD_WORDS + 30 * (TRACK_WORDS + 64), 63, 0b10001)
    records = listener.records
    assert (records.scopes, records.all_tracks, records.warps) == ((("all",),), 30, 5)
    (track,) = records.tracks
    assert [(mark.enter, mark.clock) for mark in track.marks] == [(True, 7), (False, 19)]
    last = gpu.launches[-1]
    filled = gpu.calls.index("cuMemcpyDtoDAsync")
    assert "cuCtxSynchronize" in gpu.calls[filled : gpu.calls.index("cuLaunchKernelEx")], "streams are not ordered"
    assert gpu.calls.index("cuMemcpyHtoD") < gpu.calls.index("cuLaunchKernelEx") < gpu.calls.index("cuMemcpyDtoH")
    assert (last.grid, last.block) == ((3, 2, 1), (160, 1, 1))
    bound = scoped.bound((3, 2), x, 7)
    bound()
    assert len(gpu.seen) == 2 and buffer_of(gpu.launches[-1]) != buffer_of(last)
    compiled = scoped[(1,)](x, 7)
    compiled.run((1,), x, 7)
    assert [seen[0] for seen in gpu.seen[2:]] == [HEAD_WORDS + 5 * (TRACK_WORDS + 64)] * 2


def test_launches_after_that_pass_none(gpu, listener) -> None:
    x = deuteron.get_device("cuda:0").empty((32,), "f32")
    recording.set(RecordSettings())
    scoped[(1,)](x, 7)
    recording.set(None)
    remove_launch_hook(listener)
    gpu.sizes = [8, 4]
    gpu.calls.clear()
    scoped[(1,)](x, 9)
    assert gpu.calls.count("cuLaunchKernelEx") == 1
    assert not {"cuMemcpyHtoD", "cuMemcpyDtoH"} & set(gpu.calls)


@pytest.mark.parametrize(("grid", "programs"), [((300, 1, 1), 132), ((3, 2, 1), 6)])
def test_persistent_programs_have_as_many_tracks_as_run(driver, grid, programs) -> None:
    recipe = LaunchRecipe(384, persistent=True, scopes=(("a",),))
    loaded = load_on_cuda(FakeCode(TYPES, recipe), deuteron.get_device("cuda:0"))
    assert loaded.tracks(grid) == (programs, 12)
    driver.sizes = [8, 4, 8, 4, 4, 4]
    loaded.launch(grid, (0x1000, 5, 0x7000), None)
    values = [int.from_bytes(p, "little") for p in driver.launches[-1].parameters]
    assert values == [0x1000, 5, 0x7000, *grid]


def test_scopes_are_kept_with_a_variant() -> None:
    recipe = LaunchRecipe(128, scopes=(("a",), ("a", "b")), records=RecordForm(short=True, measured=True))
    assert LaunchRecipe.from_json(recipe.to_json()) == recipe
    metadata = KernelMetadata("k", "cuda:90a", "", 4, 3, 1, recipe)
    assert KernelMetadata.from_json(metadata.to_json()).recipe == recipe
