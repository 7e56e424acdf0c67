"""Sessions that sample program counters, with stand-ins for libcupti and the driver, and on a GPU."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from example_variants import example_variant
from gpu_stand_in import FakeGpu
from sampling_stand_in import FakeDriver, SerializedCupti, install
from test_pc_sampling import CONTEXT

import deuteron.profiler as proton
import deuteron.profiler.viewer as proton_viewer
from deuteron.compiler.runtime.launch import lines
from deuteron.compiler.runtime.variant.lined import lined_cubin
from deuteron.compiler.targets.assembler import has_ptxas
from deuteron.profiler import CuptiError, UsageError, api
from deuteron.profiler.recorder import recorder
from deuteron.profiler.session import registry
from deuteron.profiler.sources import cupti as cupti_source
from deuteron.profiler.sources import driver, sampling
from deuteron.profiler.sources.debug_lines import LineTable, sections
from deuteron.profiler.sources.pc_buffer import ROW_BYTES, ROW_FIELDS
from deuteron.profiler.sources.records import KERNEL_FIELDS, KIND_CONCURRENT_KERNEL, Batch, Samples, record_dtype

LONG, LONG_NOT_ISSUED, SELECTED = 3, 4, 7  # reasons of test_pc_sampling.REASONS


@pytest.fixture
def cupti(monkeypatch: pytest.MonkeyPatch) -> SerializedCupti:
    made = SerializedCupti(FakeDriver())
    install(monkeypatch, made)
    return made


def metrics_at(tree: Callable[..., dict], *path: str) -> dict:
    return tree(*path)["metrics"]


def test_samples_are_booked_where_their_kernels_were_launched(cupti: SerializedCupti, tree: Callable) -> None:
    proton.start("p", mode="pcsampling", backend="cupti")
    with proton.scope("A"):
        cupti.kernel(5, (b"k", 0x40, 5, {LONG: 10, LONG_NOT_ISSUED: 6}), (b"k", 0x50, 5, {SELECTED: 2}))
        with proton.scope("B"):
            cupti.kernel(6, (b"k", 0x40, 6, {LONG: 3}))
        cupti.kernel(7, (b"other", 0x40, 7, {LONG: 1}))
    cupti.kernel(8, (b"k", 0x40, 8, {LONG: 4}))
    proton.deactivate(flushing=True)
    assert metrics_at(tree, "A", "k") == {
        "num_samples": 12,
        "num_stalled_samples": 6,
        "stalled_long_scoreboard": 10,
        "stalled_selected": 2,
    }
    assert metrics_at(tree, "A", "B", "k")["num_samples"] == 3
    assert metrics_at(tree, "A", "other")["num_samples"] == 1
    assert metrics_at(tree, "k")["num_samples"] == 4
    assert tree("A", "k")["children"] == []  # no lines are known
    proton.finalize()
    assert cupti.idle and cupti.calls[-1] == "Disable"


def test_kernels_that_are_loaded_between_sessions_have_samples(cupti: SerializedCupti, tree: Callable) -> None:
    for number, name in enumerate((b"early", b"late", b"last")):
        cupti.load(name)
        proton.start(f"p{number}", mode="pcsampling", backend="cupti")
        cupti.kernel(5, (name, 0x40, 5, {LONG: 10}))
        proton.deactivate(flushing=True)
        assert tree(name.decode(), session=number)["metrics"]["num_samples"] == 10
        proton.finalize()
    assert cupti.calls.count("Finalize") == 2  # not before the first session


def test_what_another_profiler_collects_is_left_alone(cupti: SerializedCupti) -> None:
    proton.start("p", mode="pcsampling", backend="cupti")
    proton.finalize()
    cupti.taken = True
    with pytest.raises(CuptiError, match="another profiler"):
        proton.start("q", mode="pcsampling", backend="cupti")
    assert "Finalize" not in cupti.calls
    cupti.taken = False
    cupti.fails["Finalize"] = 5
    with pytest.raises(CuptiError, match="cuptiFinalize: CUPTI_ERROR_5"):
        proton.start("r", mode="pcsampling", backend="cupti")


def test_samples_come_while_the_program_runs(cupti: SerializedCupti) -> None:
    """What CUPTI keeps has room for some kernels only, and nobody may drain the source for long."""
    source = sampling.SamplingSource(10)
    source.start()
    try:
        cupti.kernel(5, (b"k", 0x40, 5, {LONG: 10}))
        end = time.monotonic() + 20
        while cupti.kept and time.monotonic() < end:
            time.sleep(0.01)
        assert not cupti.kept
        cupti.kernel(6, (b"k", 0x40, 6, {LONG: 1}))
        batch = source.drain()
        assert batch.samples is not None and batch.samples.rows["launch"].tolist() == [5, 6]
        assert source.drain().samples is None
    finally:
        source.stop()
    assert cupti.idle


@pytest.mark.parametrize(("kernels", "sampled", "told"), [(20, False, True), (19, False, False), (20, True, False)])
def test_it_is_told_when_no_samples_come(
    cupti: SerializedCupti,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
    kernels: int,
    sampled: bool,
    told: bool,
) -> None:
    source = sampling.SamplingSource(10)
    records = [np.zeros(kernels, record_dtype(KERNEL_FIELDS, 216))]
    monkeypatch.setattr(cupti_source.CuptiSource, "drain", lambda self: Batch(records, np.empty((0, 2), np.uint32)))
    source.start()
    try:
        if sampled:
            cupti.kernel(5, (b"k", 0x40, 5, {LONG: 10}))
        source.drain()
        for _ in range(2):
            source.warn_dropped()
    finally:
        source.stop()
    assert capsys.readouterr().err.count("20 kernels ran and no samples came") == int(told)


def test_kernels_without_a_session_are_nowhere(cupti: SerializedCupti, tree: Callable) -> None:
    session = proton.start("p", mode="pcsampling")
    proton.deactivate(session)
    cupti.kernel(5, (b"k", 0x40, 5, {LONG: 10}))
    proton.activate(session)
    with proton.scope("A"):
        cupti.kernel(6, (b"k", 0x40, 6, {LONG: 1}))
    proton.deactivate(flushing=True)
    assert [child["frame"]["name"] for child in proton.data.get()[0]["children"]] == ["A"]  # type: ignore[index]
    assert metrics_at(tree, "A", "k")["num_samples"] == 1


def test_a_launch_that_nobody_logged_is_at_the_root(cupti: SerializedCupti, tree: Callable) -> None:
    proton.start("p", mode="pcsampling")
    with proton.scope("A"):
        cupti.kernel(5, (b"k", 0x40, 999, {LONG: 10}))
    proton.deactivate(flushing=True)
    assert metrics_at(tree, "k")["num_samples"] == 10


@pytest.mark.skipif(not has_ptxas(), reason="needs an assembler")
def test_lines_of_kernels_that_were_loaded_with_them(
    cupti: SerializedCupti, tree: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant = example_variant("vector_add.py", "add_kernel", "cuda:90a", "f32")
    image = lined_cubin(variant)
    table = LineTable(sections(image)[".debug_line"])
    at = {place: offset for offset in range(0, 4096, 16) if (place := table.at(offset))}
    first, second = list(at)[:2]
    monkeypatch.setattr(lines, "images", [])
    proton.start("p", mode="pcsampling", hook="triton")
    cupti.modules[b"add_kernel"] = sum(image)
    with proton.scope("A"):
        cupti.kernel(5, (b"add_kernel", at[first], 5, {LONG: 10}))
    proton.deactivate(flushing=True)  # before the kernel is known, as one that another thread is loading
    proton.activate()
    lines.images.append(image)
    with proton.scope("A"):
        cupti.kernel(
            6,
            (b"add_kernel", at[first], 6, {LONG: 7, LONG_NOT_ISSUED: 7}),
            (b"add_kernel", at[second], 6, {SELECTED: 5}),
            (b"add_kernel", 1 << 20, 6, {SELECTED: 1}),
            (b"stranger", at[first], 6, {SELECTED: 2}),
        )
    proton.deactivate(flushing=True)
    assert metrics_at(tree, "A", "add_kernel")["num_samples"] == 11
    frame = f"{first.file}:{first.line}@add_kernel"
    assert first.file.endswith("/examples/vector_add.py")
    assert metrics_at(tree, "A", "add_kernel", frame) == {
        "num_samples": 7,
        "num_stalled_samples": 7,
        "stalled_long_scoreboard": 7,
    }
    assert metrics_at(tree, "A", "add_kernel", f"{second.file}:{second.line}@add_kernel")["num_samples"] == 5
    assert tree("A", "stranger")["children"] == []


def test_a_lost_sample_is_told(cupti: SerializedCupti, capsys: pytest.CaptureFixture) -> None:
    proton.start("p", mode="pcsampling")
    cupti.dropped = 5
    cupti.kernel(5, (b"k", 0x40, 5, {LONG: 1}))
    proton.deactivate(flushing=True)
    assert "5 samples were dropped" in capsys.readouterr().err
    cupti.fails["GetData"] = 8  # the hardware's buffer is full
    proton.activate()
    proton.deactivate(flushing=True)
    assert "was full" in capsys.readouterr().err
    del cupti.fails["GetData"]
    proton.finalize()
    assert cupti.idle


def test_a_session_is_written_after_samples_could_not_be_taken(cupti: SerializedCupti) -> None:
    proton.start("p", mode="pcsampling")
    cupti.kernel(5, (b"k", 0x40, 5, {LONG: 1}))
    proton.data.get()
    cupti.fails["GetData"] = 999
    with pytest.raises(CuptiError, match="cuptiPCSamplingGetData"):
        proton.finalize()
    assert cupti.calls[-1] == "Disable"
    proton.finalize()
    assert "num_samples" in Path("p.hatchet").read_text()
    assert cupti.idle


@pytest.mark.parametrize("call", ["Enable", "GetNumStallReasons", "SetConfigurationAttribute"])
def test_a_start_that_fails_leaves_nothing_on(cupti: SerializedCupti, call: str) -> None:
    cupti.fails[call] = 35
    with pytest.raises(CuptiError, match=f"cuptiPCSampling{call}") as caught:
        proton.start("p", mode="pcsampling")
    assert "NVreg_RestrictProfilingToAdminUsers=0" in (caught.value.hint or "")
    assert cupti.idle and not registry.sessions and recorder.gpu is None and not lines.wanted.value
    del cupti.fails[call]
    proton.start("p", mode="pcsampling")
    assert KIND_CONCURRENT_KERNEL in cupti.activities and cupti.subscribed


def test_the_current_context_is_sampled_and_none_made_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cupti = SerializedCupti(FakeDriver(devices=2))
    cupti.driver.stack.append(CONTEXT)
    install(monkeypatch, cupti)
    proton.start("p", mode="pcsampling")
    assert cupti.calls.count("Enable") == 1 and not cupti.driver.active
    proton.finalize()
    assert cupti.driver.stack == [CONTEXT]


@pytest.mark.parametrize(("active", "used"), [({}, [0]), ({1: 0x99}, [1]), ({0: 0x88, 1: 0x99}, [0, 1])])
def test_devices_in_use_are_sampled(active: dict[int, int], used: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeDriver(devices=2, active=active)
    monkeypatch.setattr(driver, "load_driver", lambda: fake)
    held = driver.HeldContexts()
    assert held.addresses == [fake.active[device] for device in used] and fake.retained == used
    held.release()
    assert fake.retained == []
    fake.stack.append(0x99)
    assert sorted(driver.HeldContexts().addresses) == sorted({0x99, *fake.active.values()})


def test_kernels_have_lines_while_a_session_samples(cupti: SerializedCupti) -> None:
    first = proton.start("p", mode="pcsampling")
    second = proton.start("q", mode="pcsampling:interval=1024")  # of the same period
    assert lines.wanted.value
    proton.deactivate(first)
    assert lines.wanted.value
    proton.deactivate(second)
    assert not lines.wanted.value
    proton.activate(first)
    proton.finalize()
    assert not lines.wanted.value
    proton.start("r")
    assert not lines.wanted.value


def test_two_sessions_share_samples(cupti: SerializedCupti) -> None:
    proton.start("p", mode="pcsampling")
    with proton.scope("A"):
        proton.start("q", mode=proton.mode.PCSampling())
        cupti.kernel(5, (b"k", 0x40, 5, {LONG: 10}))
    proton.finalize()
    for name in "pq":
        (scope,) = json.loads(Path(f"{name}.hatchet").read_text())[0]["children"]
        assert scope["children"][0]["metrics"]["num_samples"] == 10


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"mode": "pcsampling"}, {}),
        ({}, {"mode": "pcsampling"}),
        ({"mode": "pcsampling"}, {"mode": "pcsampling:interval=64"}),
        ({"mode": "pcsampling"}, {"backend": "instrumentation"}),
        ({"mode": "periodic_flushing"}, {"mode": "pcsampling"}),
    ],
)
def test_other_sessions_do_not_run_beside(cupti: SerializedCupti, first: dict, second: dict) -> None:
    session = proton.start("p", **first)
    for _ in range(2):
        with pytest.raises(UsageError, match="a different mode than existing sessions: 'p' has the mode"):
            proton.start("q", **second)
        proton.deactivate(session)  # changes nothing: the hardware still samples
    assert [found.name for found in registry.sessions.values()] == ["p"]
    proton.finalize()
    proton.start("q", **second)


@pytest.mark.parametrize(("interval", "period"), [(32, 5), (45, 5), (46, 6), (1000, 10), (1024, 10), (1 << 31, 31)])
def test_an_interval_is_the_nearest_power_of_two(interval: int, period: int) -> None:
    assert proton.mode.PCSampling(interval=interval).period == period
    assert str(proton.mode.PCSampling(interval)) == f"pcsampling:interval={interval}"


@pytest.mark.parametrize(
    "text", ["interval=31", "interval=2147483649", "interval=-5", "interval", "rate=5", "interval=1e3"]
)
def test_intervals_that_cannot_be_had(text: str) -> None:
    with pytest.raises(UsageError):
        proton.start("p", mode=f"pcsampling:{text}")
    with pytest.raises(ValueError, match="interval=-5|every 0"):
        proton.mode.PCSampling(interval=0 if "5" not in text else -5)


@pytest.mark.parametrize("arguments", [{"backend": "cpu"}, {"data": "trace"}, {"backend": "instrumentation"}])
def test_what_does_not_go_with_samples(arguments: dict) -> None:
    with pytest.raises(UsageError) as caught:
        proton.start("p", mode="pcsampling", **arguments)
    assert caught.value.hint and not registry.sessions


def test_without_a_gpu_a_session_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "load_driver", lambda: None)
    with pytest.raises(CuptiError, match="needs an NVIDIA GPU and its driver; none was found"):
        proton.start("p", mode="pcsampling")
    assert not registry.sessions and not lines.wanted.value


class SampledGpu(FakeGpu):
    """Hands over samples of the launches, beside their records."""

    def __init__(self, synthetic: Any) -> None:
        super().__init__(synthetic)
        self.samples: list[tuple[int, ...]] = []

    def sample(self, name: str, samples: int) -> None:
        """Samples of the last launch."""
        address = int.from_bytes(self.kernel(name, 0, 0)[104:112], "little")
        self.samples.append((self.launched, 1, 0, address, LONG, samples))

    def drain(self) -> Any:
        rows = np.array(self.samples, record_dtype(ROW_FIELDS, ROW_BYTES))
        self.samples.clear()
        reasons = {LONG: ("stalled_long_scoreboard", False)}
        return replace(super().drain(), samples=Samples(rows, reasons, {}) if len(rows) else None)


def test_times_and_samples_are_at_one_frame(
    synthetic: Any, launch: Callable, tree: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = SampledGpu(synthetic)
    monkeypatch.setattr(api, "sampling_source", lambda period: gpu)
    proton.start("p", mode="pcsampling", hook="triton")

    def body() -> None:
        gpu.launch("k_in_the_code", 30)
        gpu.sample("k_in_the_code", 9)

    with proton.scope("A"):
        launch("k", metadata={"name": "named"}, device="cuda:0", body=body)
        body()
    proton.deactivate(flushing=True)
    for name in ("named", "k_in_the_code"):
        found = metrics_at(tree, "A", name)
        assert (found["count"], found["time (ns)"], found["num_samples"]) == (1, 30, 9)
    proton.finalize()
    pytest.importorskip("hatchet", reason="needs the extra viewer: pip install 'deuteron[viewer]'")
    shown = [line.split()[-3:] for line in proton_viewer.render("p.hatchet", ["num_samples", "time/ns"]).splitlines()]
    wanted = [["18.000", "60.000", "A"], ["9.000", "30.000", "named"]]
    assert [line for line in shown if line and line[-1] in ("A", "named")] == wanted


def test_every_row_is_counted_once(synthetic: Any, monkeypatch: pytest.MonkeyPatch, tree: Callable) -> None:
    """Random rows, beside a plain sum over them."""
    gpu = SampledGpu(synthetic)
    monkeypatch.setattr(api, "sampling_source", lambda period: gpu)
    rng = np.random.default_rng(3)
    proton.start("p", mode="pcsampling")
    wanted: dict[tuple[str, str], int] = {}
    for _ in range(300):
        scope, name, samples = str(rng.integers(4)), f"k{rng.integers(3)}", int(rng.integers(1, 9))
        with proton.scope(scope):
            gpu.launch(name, 1)
            for _ in range(rng.integers(1, 4)):
                gpu.sample(name, samples)
                wanted[scope, name] = wanted.get((scope, name), 0) + samples
        if rng.random() < 0.05:
            recorder.flush()
    proton.deactivate(flushing=True)
    assert {at: metrics_at(tree, *at)["num_samples"] for at in wanted} == wanted


def test_threads_may_launch_while_others_look(cupti: SerializedCupti, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_SECONDS_BETWEEN_LOOKS", 0.001)
    proton.start("p", mode="pcsampling")

    def work(thread: int) -> None:
        for number in range(200):
            with proton.scope(f"T{thread}"):
                id_ = 1 + number + 1000 * thread
                cupti.kernel(id_, (b"k", 16 * number, id_, {LONG: 1 + thread}))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    proton.finalize()
    scopes = json.loads(Path("p.hatchet").read_text())[0]["children"]
    found = {scope["frame"]["name"]: scope["children"][0]["metrics"]["num_samples"] for scope in scopes}
    assert found == {"T0": 200, "T1": 400, "T2": 600}
