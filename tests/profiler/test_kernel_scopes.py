"""Sessions with ``backend="instrumentation"``: what kernels record becomes frames of a tree and lanes of a trace."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
import deuteron.profiler as proton
import deuteron.profiler.language as pl
from deuteron.compiler.record_buffer import RecordForm
from deuteron.compiler.runtime.launch.hooks import LaunchEvent, launch_with_hooks
from deuteron.compiler.runtime.launch.recording import recording
from deuteron.compiler.runtime.launch.records import LaunchRecords, RecordedMark, RecordSettings, Track
from deuteron.profiler.cli import proton_main
from deuteron.profiler.errors import UsageError
from deuteron.profiler.kernel_scopes import spans_of


@deuteron.jit
def scaled(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with pl.scope("all"):
        pl.enter_scope("load")
        v = tl.load(x + i, mask=i < n)
        pl.exit_scope("load")
        for _ in range(tl.program_id(0)):
            with proton.language.scope("step"):
                v = v * 2
        tl.store(y + i, v, mask=i < n)


def run(programs: int = 3) -> np.ndarray:
    x, y = np.ones(16 * programs, np.float32), np.zeros(16 * programs, np.float32)
    scaled[(programs,)](x, y, len(x), 16)
    np.testing.assert_array_equal(y, np.repeat(2.0 ** np.arange(programs), 16))
    return y


def tree_of(path: str = "profile.hatchet") -> dict[tuple[str, ...], dict[str, object]]:
    return {path: node.metrics for path, node in proton.Profile.read(path).walk()}


KERNEL = ("outer", "scaled")


def test_a_tree_has_the_cycles_of_scopes_below_their_kernel() -> None:
    proton.start("profile", backend="instrumentation")
    with proton.scope("outer"):
        run()
    proton.finalize()
    tree = tree_of()
    paths = [(*KERNEL, "all"), (*KERNEL, "all", "load"), (*KERNEL, "all", "step")]
    assert list(tree) == [(), ("outer",), KERNEL, *paths]
    for path in paths:
        metrics = tree[path]
        assert metrics["cycles"] > 0
        assert metrics["normalized_cycles"] == pytest.approx(metrics["cycles"] / 3)
        assert (metrics["device_id"], metrics["device_type"]) == ("0", "CPU")
    assert tree[KERNEL] == tree["outer",] == {}, "times of launches are not those of the plain kernel"
    assert recording.value is None, "kernels go back to their plain code"


def test_cycles_of_a_scope_are_its_own_and_add_up_in_the_viewer(capsys) -> None:
    marks = [(0, True, 0), (1, True, 10), (1, False, 30), (1, True, 50), (1, False, 55), (0, False, 100)]
    book([track(marks), track([(1, False, 5), (0, False, 20)], program=1)])
    assert {path: metrics["cycles"] for path, metrics in tree_of().items() if "cycles" in metrics} == {
        ("k", "a"): 75,
        ("k", "a", "b"): 25,
        (): 0,
    }
    assert proton_viewer("-m", "cycles,normalized_cycles", "profile.hatchet", capsys) == [
        "100.000 25.000 ROOT",
        "└─ 100.000 25.000 k",
        "   └─ 100.000 25.000 a",
        "      └─ 25.000 6.250 b",
    ]


def test_records_of_several_launches_and_sessions_are_added() -> None:
    proton.start("profile", backend="instrumentation")
    proton.start("times")
    run()
    first = {path: dict(node.metrics) for path, node in proton_data().items()}
    run()
    proton.finalize()
    cycles = [tree["scaled", "all"]["cycles"] for tree in (first, tree_of())]
    assert cycles[1] > cycles[0] > 0
    plain = tree_of("times.hatchet")
    assert plain["scaled",]["count"] == 2, "a session beside it has the times of the same launches"
    assert list(plain) == [(), ("scaled",)]


def proton_data() -> dict[tuple[str, ...], proton.Node]:
    from deuteron.profiler.session import registry

    session = next(iter(registry.sessions.values()))
    return dict(session.phases[0].profile.walk())


def test_a_trace_has_a_lane_for_each_program() -> None:
    proton.start("profile", backend="instrumentation", data="trace")
    run(programs=12)
    proton.finalize()
    document = json.loads(Path("profile.chrome_trace").read_text())
    assert document["displayTimeUnit"] == "ns"
    lanes = {e["tid"]: e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"}
    assert [lanes[number] for number in sorted(lanes)] == [f"scaled program {p}" for p in range(12)]
    spans = [event for event in document["traceEvents"] if event["ph"] == "X"]
    for number, lane in lanes.items():
        program = int(lane.split()[-1])
        mine = [span for span in spans if span["tid"] == number]
        assert sorted(span["name"] for span in mine) == ["all", "load", *["step"] * program]
        (whole,) = [span for span in mine if span["name"] == "all"]
        for span in mine:
            assert span["cat"] == "kernel"
            assert whole["ts"] <= span["ts"] + 0.002
            assert span["ts"] + span["dur"] <= whole["ts"] + whole["dur"] + 0.002
            assert span["args"]["call_stack"][:2] == ["ROOT", "scaled"]
    assert min(span["ts"] for span in spans) == 0


def track(marks, *, program: int = 0, warp: int = 0, lost: int = 0, first_ns: int = 0) -> Track:
    made = tuple(RecordedMark(*mark) for mark in marks)
    last = made[-1].clock
    return Track(program, warp, 5, 1000, 1000 + last, first_ns, first_ns + last // 2 if first_ns else 0, lost, made)


SCOPES = (("a",), ("a", "b"))


def book(
    tracks,
    *,
    warps: int = 1,
    device: str = "cpu",
    rate: float | None = 1.0,
    data: str = "tree",
    record_ticks: int = 0,
) -> None:
    """Record what a launch of ``k`` would leave."""
    proton.start("profile", backend="instrumentation", data=data)
    event = LaunchEvent("k", SimpleNamespace(name=device), 0, (1, 1, 1), dict)  # type: ignore[arg-type]
    made = LaunchRecords(SCOPES, tuple(tracks), 4, warps, rate, record_ticks)
    launch_with_hooks(event, lambda: setattr(event, "records", made))
    proton.finalize()


def test_the_newest_records_count_where_others_were_lost() -> None:
    """Ends whose beginnings are gone say nothing; what follows them does."""
    marks = [(1, False, 4), (1, True, 10), (1, False, 30), (0, False, 90), (0, True, 100), (0, False, 107)]
    with pytest.warns(RuntimeWarning, match="k: 9 records inside the kernel were lost, the newest of each warp"):
        book([track(marks, lost=9)])
    tree = tree_of()
    assert (tree["k", "a"]["cycles"], tree["k", "a", "b"]["cycles"]) == (7, 20)
    assert tree["k",] == {"lost_records": 9}


def test_a_trace_of_a_gpu_has_a_lane_for_each_warp() -> None:
    """Two processors, whose clocks have nothing to do with each other, on one timer; two cycles a nanosecond."""
    marks = [(0, True, 200), (1, True, 400), (1, False, 600), (0, False, 1000)]
    tracks = [track(marks, program=p, warp=w, first_ns=7000 + 1000 * p) for p in (0, 1) for w in (0, 4)]
    book(tracks, warps=5, device="cuda:1", rate=None, data="trace")
    events = json.loads(Path("profile.chrome_trace").read_text())["traceEvents"]
    lanes = {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name"}
    assert list(lanes) == [f"k program {p} warp {w}" for p in (0, 1) for w in (0, 4)]
    spans = {(e["tid"], e["name"]): (e["ts"], e["dur"]) for e in events if e["ph"] == "X"}
    for p in (0, 1):
        for w in (0, 4):
            lane = lanes[f"k program {p} warp {w}"]
            assert spans[lane, "a"] == (p * 1.0, 0.4)
            assert spans[lane, "b"] == (p * 1.0 + 0.1, 0.1)
    whole = next(e for e in events if e["ph"] == "X" and e["name"] == "a")
    assert whole["args"]["metrics"] == {"cycles": "800", "lost_records": "0", "processor": "5"}
    assert whole["args"]["call_stack"] == ["ROOT", "k", "a"]


def test_devices_of_gpus_are_named(capsys) -> None:
    book([track([(0, True, 1), (0, False, 4)])], device="cuda:1", rate=None)
    metrics = tree_of()["k", "a"]
    assert (metrics["device_type"], metrics["device_id"]) == ("CUDA", "1")


def test_what_recording_takes_is_taken_out_of_times(capsys) -> None:
    """Two records of ``b`` and what they take stand in ``a``, and one that takes more than was between two."""
    marks = [(0, True, 100), (1, True, 110), (1, False, 130), (1, True, 150), (1, False, 154), (0, False, 200)]
    book([track(marks)], record_ticks=6)
    tree = tree_of()
    assert (tree["k", "a"]["cycles"], tree["k", "a", "b"]["cycles"]) == (4 + 14 + 40, 14 + 0)
    assert proton_viewer("-m", "cycles", "profile.hatchet", capsys)[2] == "   └─ 72.000 a"
    book([track(marks)])
    assert tree_of()["k", "a"]["cycles"] == 10 + 20 + 46


def test_a_trace_without_what_recording_takes_still_nests() -> None:
    """Spans move up by what the records before them took."""
    marks = [(0, True, 100), (1, True, 110), (1, False, 130), (1, True, 150), (1, False, 154), (0, False, 200)]
    book([track(marks, first_ns=5000)], record_ticks=6, data="trace", rate=0.001)
    events = json.loads(Path("profile.chrome_trace").read_text())["traceEvents"]
    spans = sorted((e["ts"], e["dur"], e["name"]) for e in events if e["ph"] == "X")
    assert spans == [(0, 72, "a"), (4, 14, "b"), (32, 0, "b")]
    cycles = {(e["ts"], e["args"]["metrics"]["cycles"]) for e in events if e["ph"] == "X"}
    assert cycles == {(0, "72"), (4, "14"), (32, "0")}


def test_what_recording_takes_is_measured_in_the_kernel(listener) -> None:
    """Recording takes ticks of any processor, and less of a scope is left without it, if nothing else happens."""
    proton.start("profile", backend="instrumentation", mode=proton.mode.Default(optimizations="clock32,time_shift"))
    run(programs=12)
    proton.finalize()
    records = listener.records
    assert records.record_ticks > 0
    for found in records.tracks:
        own = {taken: [s.end - s.begin for s in spans_of(found, taken)] for taken in (0, records.record_ticks)}
        before, after = own.values()
        assert all(0 <= less < more for less, more in zip(after, before, strict=True) if more)
    assert tree_of()["scaled", "all"]["cycles"] >= 0


def test_times_that_records_of_32_bits_cannot_tell_are_doubted() -> None:
    marks = [(0, True, 1), (0, False, 4)]
    with pytest.warns(RuntimeWarning, match="k: in 2 warps more time passed than records of 32 bits can tell"):
        book([track(marks), *(replace(track(marks, program=p), doubtful=True) for p in (1, 2))])


def test_spans_know_what_is_theirs() -> None:
    marks = [(0, True, 0), (1, True, 1), (1, False, 3), (0, False, 9), (0, True, 9)]
    assert [(s.scope, s.begin, s.end, s.own) for s in spans_of(track(marks))] == [(1, 1, 3, 2), (0, 0, 9, 7)]


# Modes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        (None, RecordSettings()),
        ("", RecordSettings()),
        ("default", RecordSettings()),
        ("default:buffer_size=4096", RecordSettings(4096)),
        ("default:sampling_strategy=selective:sampling_options=4,0,4", RecordSettings(0, (0, 4))),
        (
            "default:metric_type=cycle:sampling_strategy=none:sampling_options=:granularity=warp"
            ":buffer_strategy=circular:buffer_type=global:buffer_size=0:optimizations=",
            RecordSettings(),
        ),
        (proton.mode.Default(buffer_size=64, granularity="warp"), RecordSettings(64)),
        ("default:optimizations=clock32", RecordSettings(form=RecordForm(short=True))),
        (
            proton.mode.Default(metric_type="cycle", optimizations="clock32, time_shift"),
            RecordSettings(form=RecordForm(short=True, measured=True)),
        ),
        (
            proton.mode.Default(
                metric_type="cycle", optimizations="time_shift", sampling_strategy="selective", sampling_options="0"
            ),
            RecordSettings(0, (0,), RecordForm(measured=True)),
        ),
    ],
)
def test_options_that_do_something(mode, settings) -> None:
    proton.start("profile", backend="instrumentation", mode=mode)
    assert recording.value == settings


REFUSED = {
    "mma": "nothing is recorded but the scopes",
    "periodic_flushing": "does not fit the backend 'instrumentation'",
    "pcsampling": "does not fit the backend 'instrumentation'",
    "other": "unknown mode 'other'",
    "default:color=red": "unknown option 'color=red'",
    "default:granularity": "unknown option 'granularity'",
    "default:granularity=cta": "granularity=cta is not supported: each warp has a clock",
    "default:granularity=warp_group_2": "is not supported",
    "default:granularity=lane": "granularity cannot be 'lane'",
    "default:metric_type=ns": "metric_type cannot be 'ns'",
    "default:buffer_type=shared": "buffer_type=shared is not supported: records go to global memory",
    "default:buffer_strategy=flush": "keeps the newest records",
    "default:buffer_size=-1": "buffer_size cannot be '-1'",
    "default:buffer_size=1k": "buffer_size cannot be '1k'",
    "default:sampling_strategy=selective": "belong together",
    "default:sampling_options=1": "belong together",
    "default:sampling_strategy=selective:sampling_options=64": "'64' is not a warp",
    "default:sampling_strategy=selective:sampling_options=a": "'a' is not a warp",
    "default:optimizations=sched_stores": "optimizations=sched_stores is not supported: a warp stores its records 32",
    "default:optimizations=clock32,sched_barriers": "no barrier is put around records",
    "default:optimizations=faster": "unknown optimization 'faster'",
}


@pytest.mark.parametrize("mode", REFUSED)
def test_options_without_effect_are_refused(mode) -> None:
    with pytest.raises(UsageError, match=REFUSED[mode]):
        proton.start("profile", backend="instrumentation", mode=mode)
    assert recording.value is None


def test_modes_of_records_need_their_backend() -> None:
    for backend in (None, "cpu"):
        with pytest.raises(UsageError, match="'default' does not fit the backend"):
            proton.start("profile", backend=backend, mode="default")


def test_kernels_record_in_one_way_at_a_time() -> None:
    proton.start("one", backend="instrumentation")
    proton.start("same", backend="instrumentation", mode="default")
    with pytest.raises(UsageError, match="the session 'one' records inside kernels with other options"):
        proton.start("other", backend="instrumentation", mode="default:buffer_size=64")


def test_small_buffers_lose_old_records() -> None:
    proton.start("profile", backend="instrumentation", mode="default:buffer_size=32")
    with pytest.warns(RuntimeWarning, match="scaled: 12 records inside the kernel were lost"):
        run(programs=18)
    proton.finalize()
    tree = tree_of()
    assert (
        tree["scaled",]
        == {"lost_records": sum(2 * p + 4 - 32 for p in range(18) if 2 * p + 4 > 32)}
        == {"lost_records": 12}
    )
    assert {path[-1] for path in tree if path} >= {"all", "load", "step"}, "those of small programs are whole"


def test_deactivated_sessions_leave_kernels_alone() -> None:
    session = proton.start("profile", backend="instrumentation")
    proton.deactivate(session)
    assert recording.value is None
    run()
    proton.activate(session)
    assert recording.value == RecordSettings()
    proton.deactivate(session)
    proton.finalize()
    assert list(tree_of()) == [()]


def test_a_bound_launch_records_while_it_was_bound_in_a_session() -> None:
    x = np.ones(32, np.float32)
    proton.start("profile", backend="instrumentation")
    bound = scaled.bound((2,), x, x.copy(), 32, 16)
    bound()
    proton.finalize()
    assert ("scaled", "all") in tree_of()
    bound()  # the buffer is that launch's own


def test_semantics_of_tritons_language() -> None:
    pl.enable_semantic("triton")
    pl.disable_semantic("gluon")
    with pytest.raises(UsageError, match="there is no language 'gluon' here"):
        pl.enable_semantic("gluon")


def proton_viewer(*arguments) -> list[str]:
    from deuteron.profiler.viewer import main

    *options, capsys = arguments
    assert main(options) == 0
    return [line for line in capsys.readouterr().out.splitlines() if line]


SCRIPT = """
import numpy as np

import deuteron
import deuteron.language as tl
import deuteron.profiler.language as pl


@deuteron.jit
def k(x):
    with pl.scope("inside"):
        tl.store(x + tl.arange(0, 16), 1.0)


k[(2,)](np.zeros(16, np.float32))
"""


def test_the_command_profiles_inside_kernels() -> None:
    Path("script.py").write_text(SCRIPT)
    assert proton_main(["-b", "instrumentation", "-n", "made", "script.py"]) == 0
    assert ("k", "inside") in tree_of("made.hatchet")


def test_the_interpreter_records_nothing(monkeypatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")

    @deuteron.jit
    def eager(x):
        with pl.scope("inside"):
            tl.store(x + tl.arange(0, 16), 1.0)

    x = np.zeros(16, np.float32)
    proton.start("profile", backend="instrumentation")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        eager[(1,)](x)
    proton.finalize()
    assert x.all()
    assert all(not metrics for metrics in tree_of().values())
