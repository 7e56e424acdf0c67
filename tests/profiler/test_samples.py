"""Samples of a kernel by source line: with a stand-in for libcupti, and on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_pc_sampling import CONTEXT, FakeCupti

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.runtime.launch.compiled import CompiledKernel, compile_variant
from deuteron.compiler.runtime.variant.lined import lined_cubin
from deuteron.compiler.runtime.variant.variant import make_variant
from deuteron.compiler.source.kernel import KernelSource
from deuteron.profiler import UsageError, sample_lines, samples
from deuteron.profiler.sources import pc_sampling
from deuteron.profiler.sources.debug_lines import LineTable, sections

EXAMPLES = Path(__file__).parents[2] / "examples"
TYPES = {"x_ptr": "*f32:16", "y_ptr": "*f32:16", "output_ptr": "*f32:16", "n_elements": "i32"}


class Cupti(FakeCupti):
    """Every cubin has the CRC of the samples."""

    def cuptiGetCubinCrc(self, reference: Any) -> int:  # noqa: N802
        super().cuptiGetCubinCrc(reference)
        reference._obj.cubinCrc = 77
        return 0

    def cuptiSubscribe(self, subscriber: Any, callback: Any, user: Any) -> int:  # noqa: N802
        return 0

    def cuptiUnsubscribe(self, subscriber: Any) -> int:  # noqa: N802
        return 0

    def cuptiFinalize(self) -> int:  # noqa: N802
        self.calls.append("Finalize")
        return 0


@pytest.fixture(autouse=True)
def never_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pc_sampling, "_sampled", False)


def add_kernel(target: str = "cuda:90a") -> CompiledKernel:
    source = KernelSource.from_file(EXAMPLES / "vector_add.py", "add_kernel")
    return compile_variant(make_variant(source, TYPES, {"BLOCK_SIZE": 1024}, target, {}))


def test_samples_are_added_up_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, cupti, ran = add_kernel(), Cupti(), []
    monkeypatch.setattr(samples, "load_cupti", lambda: cupti)
    monkeypatch.setattr(samples, "_current_context", lambda: CONTEXT)
    monkeypatch.setattr(CompiledKernel, "run", lambda self, grid, *args: ran.append((self, grid, args)))
    table = LineTable(sections(lined_cubin(kernel.variant))[".debug_line"])
    places = {at: table.at(at) for at in range(0, 4096, 16)}
    text = (EXAMPLES / "vector_add.py").read_text().splitlines()
    load = next(n for n, line in enumerate(text, 1) if "tl.load(x_ptr" in line)
    store = next(n for n, line in enumerate(text, 1) if "tl.store(" in line)
    at_load = [at for at, place in places.items() if place and place.line == load][:2]
    at_store = next(at for at, place in places.items() if place and place.line == store)
    cupti.ready = [
        (b"add_kernel", at_load[0], 0, {3: 10, 4: 6, 7: 2}),
        (b"add_kernel", at_load[1], 0, {3: 20, 4: 1}),
        (b"add_kernel", at_store, 0, {8: 3}),
        (b"add_kernel", 0x100000, 0, {7: 1}),
    ]
    found = sample_lines(kernel, (4,), "x", 7, seconds=0)
    assert [(line.line and line.line.line, line.count, line.stalled) for line in found.lines] == [
        (load, 32, 7),
        (store, 3, 0),
        (None, 1, 0),
    ]
    assert found.lines[0].reasons == {"stalled_long_scoreboard": 30, "stalled_selected": 2}
    assert (found.kernel, found.launches, found.count) == ("add_kernel", 3, 36)
    assert f"88.9%  vector_add.py:{load}" in str(found) and "long_scoreboard 83.3%" in str(found)
    assert cupti.calls[-4:] == ["Start", "Stop", "GetData", "Disable"]
    # Once before sampling begins, so that loading the code is no part of it; always the kernel with lines.
    assert len(ran) == 4 and {entry[1:] for entry in ran} == {((4,), ("x", 7))}
    assert ".debug_line" in sections(ran[0][0].code()) and ran[0][0] is not kernel


@pytest.mark.parametrize("collecting", [False, True])
def test_a_second_kernel_is_sampled_by_cupti_attached_anew(monkeypatch: pytest.MonkeyPatch, collecting: bool) -> None:
    """It would not know the kernel's code, which is loaded then. A session that is on sees it being loaded."""
    cupti = Cupti()
    monkeypatch.setattr(samples, "load_cupti", lambda: cupti)
    monkeypatch.setattr(samples, "_current_context", lambda: CONTEXT)
    monkeypatch.setattr(CompiledKernel, "run", lambda self, grid, *args: cupti.calls.append("run"))
    monkeypatch.setattr(samples.recorder, "gpu", object() if collecting else None)
    for _ in range(2):
        sample_lines(add_kernel(), (4,), seconds=0)
    assert cupti.calls.count("Finalize") == (not collecting)
    assert collecting or cupti.calls[cupti.calls.index("Finalize") :][1] == "run"


def test_samples_of_other_modules_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cupti = FakeCupti()
    monkeypatch.setattr(samples, "load_cupti", lambda: cupti)
    monkeypatch.setattr(samples, "_current_context", lambda: CONTEXT)
    monkeypatch.setattr(CompiledKernel, "run", lambda *args: None)
    cupti.ready = [(b"add_kernel", 0, 0, {3: 10})]
    assert sample_lines(add_kernel(), (1,), seconds=0).lines == ()


def test_sampling_ends_where_a_launch_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    cupti, launches = Cupti(), iter([None])

    def run(*args: object) -> None:
        if next(launches, "no more") is not None:
            raise DeuteronError("the device is gone")

    monkeypatch.setattr(samples, "load_cupti", lambda: cupti)
    monkeypatch.setattr(samples, "_current_context", lambda: CONTEXT)
    monkeypatch.setattr(CompiledKernel, "run", run)
    with pytest.raises(DeuteronError, match="gone"):
        sample_lines(add_kernel(), (1,), seconds=0)
    assert cupti.calls[-1] == "Disable"


@pytest.mark.parametrize(("target", "period", "match"), [("cuda:90a", 4, "period of 4"), ("cpu", 10, "runs on a CPU")])
def test_what_cannot_be_sampled(target: str, period: int, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        sample_lines(add_kernel(target), (1,), period=period)
