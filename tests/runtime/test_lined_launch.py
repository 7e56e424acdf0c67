"""Launches of kernels with source lines, on a driver that runs nothing: which variant runs, and what is kept of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_driver import FakeDriver

import deuteron
import deuteron.language as tl
from deuteron.compiler.errors import TargetError
from deuteron.compiler.runtime.launch import lines
from deuteron.compiler.runtime.launch.compiled import CompiledKernel, compile_variant
from deuteron.compiler.runtime.launch.lines import note_loaded
from deuteron.compiler.runtime.variant.pipeline import build
from deuteron.compiler.targets.assembler import has_ptxas
from deuteron.profiler.sources.debug_lines import LineTable, sections

HERE = Path(__file__)


@deuteron.jit
def helper(x):
    return x * 3.0


@deuteron.jit
def scaled(x, n):
    at = tl.arange(0, 32)
    loaded = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(x + at, helper(loaded), mask=at < n)


@pytest.fixture(autouse=True)
def no_lines_after(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(lines, "images", [])
    yield
    lines.wanted.set(False)


@pytest.fixture
def gpu(driver: FakeDriver) -> FakeDriver:
    driver.sizes = [8, 4]
    return driver


def launched(value: object = 7) -> CompiledKernel:
    return scaled[(1,)](deuteron.get_device("cuda:0").empty((32,), "f32"), value)


def lines_of(image: bytes) -> set[int]:
    table = LineTable(sections(image)[".debug_line"])
    places = [table.at(at) for at in range(0, 4096, 16)]
    assert {place.file for place in places if place} == {str(HERE)}
    return {place.line for place in places if place}


@pytest.mark.skipif(not has_ptxas(), reason="needs an assembler")
def test_launches_run_the_variant_with_lines_while_it_is_asked_for(gpu: FakeDriver) -> None:
    plain = launched()
    assert lines.images == [] and not plain.variant.lined
    lines.wanted.set(True)
    lined = launched()
    assert lined is not plain and lined.variant.lined
    assert lined.metadata.recipe == plain.metadata.recipe and lined.n_regs == plain.n_regs
    (image,) = lines.images
    assert image == lined.code()
    text = HERE.read_text().splitlines()
    wanted = [
        number for number, line in enumerate(text, 1) if line.lstrip().startswith(("loaded = tl.load", "return x"))
    ]
    assert set(wanted) <= lines_of(image)
    assert launched() is lined and len(lines.images) == 1
    lines.wanted.set(False)
    assert launched() is plain and len(lines.images) == 1


@pytest.mark.skipif(not has_ptxas(), reason="needs an assembler")
def test_a_bound_launch_has_lines_if_it_was_bound_meanwhile(gpu: FakeDriver) -> None:
    x = deuteron.get_device("cuda:0").empty((32,), "f32")
    before = scaled.bound((1,), x, 7)
    lines.wanted.set(True)
    assert not before().variant.lined
    assert scaled.bound((1,), x, 7)().variant.lined


def test_lines_change_no_instruction(gpu: FakeDriver) -> None:
    lines.wanted.set(True)
    variant = scaled.specialized((deuteron.get_device("cuda:0").empty((32,), "f32"), 7), {}).variant
    lines.wanted.set(False)
    plain = scaled.specialized((deuteron.get_device("cuda:0").empty((32,), "f32"), 7), {}).variant
    assert variant.lined and not plain.lined and variant.key != plain.key

    def code(made: object) -> list[str]:
        text = str(build(made, stop_after="ptx").artifacts["ptx"])  # type: ignore[arg-type]
        return [
            line
            for line in text.splitlines()
            if line.startswith("\t") and not line.startswith(("\t.loc", "\t.file", "\t.section"))
        ]

    assert code(variant) == code(plain)


@pytest.mark.skipif(not has_ptxas(), reason="needs an assembler")
def test_variants_with_lines_are_not_kept_on_disk(gpu: FakeDriver, private_cache: Path) -> None:
    """The next process may find the kernel in another place of its file."""
    lines.wanted.set(True)
    variant = launched().variant
    assert not compile_variant(variant).metadata.cached
    assert list(private_cache.rglob("*.entry")) == []
    compile_variant(replace(variant, lined=False))
    assert len(list(private_cache.rglob("*.entry"))) == 1


def test_launches_on_the_cpu_have_no_lines() -> None:
    import numpy as np

    lines.wanted.set(True)
    x = np.ones(32, np.float32)
    assert not scaled[(1,)](x, 7).variant.lined
    assert x.tolist() == [3.0] * 7 + [1.0] * 25 and lines.images == []


def test_code_that_the_driver_assembles_is_not_kept() -> None:
    note_loaded(b".version 8.0\0")
    assert lines.images == []


def test_without_an_assembler_launches_go_on(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    from deuteron.compiler.targets import nvptx

    def none(*args: object, **options: object) -> None:
        raise TargetError("no assembler")

    monkeypatch.setattr(nvptx, "assemble", none)
    lines.wanted.set(True)
    assert launched().variant.lined and lines.images == []
