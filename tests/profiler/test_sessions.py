"""Sessions, scopes and states. Trees are those that Proton 3.9 records for the same calls."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deuteron.profiler as proton
from deuteron.compiler import knobs
from deuteron.profiler.session import registry


def names(node: dict) -> list[str]:
    return [child["frame"]["name"] for child in node["children"]]


def test_nothing_happens_without_a_session(tmp_path: Path) -> None:
    with proton.scope("a", {"x": 1}), proton.cpu_timed_scope("b"), proton.state("s"):
        assert proton.enter_scope("c") is None
        assert proton.exit_scope() is None
    assert proton.context.depth() is None
    proton.finalize()
    assert list(tmp_path.iterdir()) == []


def test_scopes_nest_and_same_names_merge(tree: Callable[..., dict]) -> None:
    proton.start("p")
    for value in (1, 2):
        with proton.scope("A"), proton.scope("B", {"m": value, "p (pty)": value}):
            assert proton.context.depth() == 2
    assert names(tree()) == ["A"]
    assert tree("A")["metrics"] == {}
    assert tree("A", "B")["metrics"] == {"m": 3, "p": 2}
    proton.finalize()
    assert json.loads(Path("p.hatchet").read_text())[0]["children"][0]["frame"]["name"] == "A"


def test_a_scope_without_metrics_makes_a_frame(tree: Callable[..., dict]) -> None:
    proton.start("p")
    with proton.scope("A"):
        pass
    assert tree("A")["children"] == []


def test_scopes_as_decorators(tree: Callable[..., dict]) -> None:
    proton.start("p")

    @proton.scope("f", {"calls": 1})
    def f(n: int) -> int:
        """Doc."""
        return n if n == 0 else f(n - 1)

    assert f(2) == 0
    assert f.__doc__ == "Doc."
    assert tree("f")["metrics"] == {"calls": 1}
    assert tree("f", "f", "f")["metrics"] == {"calls": 1}


def test_enter_and_exit_scope(tree: Callable[..., dict]) -> None:
    proton.start("p")
    first = proton.enter_scope("A", metrics={"m": 1})
    second = proton.enter_scope("B")
    assert first is not None and second is not None and first != second
    with pytest.raises(ValueError, match="name mismatch"):
        proton.exit_scope("A")
    assert proton.exit_scope("B") == second
    assert proton.exit_scope(metrics={"m": 3}) == first
    assert tree("A")["metrics"] == {"m": 4}
    with pytest.raises(proton.UsageError, match="without enter_scope"):
        proton.exit_scope()


def test_a_scope_that_is_left_out_of_order_is_an_error_and_leaves_its_insides() -> None:
    proton.start("p")
    outer, inner = proton.scope("A"), proton.scope("B")
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(proton.UsageError, match="other scopes are open"):
        outer.__exit__(None, None, None)
    assert proton.context.depth() == 0


def test_an_exception_leaves_the_scopes_and_is_not_replaced() -> None:
    proton.start("p")
    with pytest.raises(KeyError), proton.scope("A"):
        proton.enter_scope("B")
        raise KeyError
    assert proton.context.depth() == 0


def test_bad_metrics_do_not_leave_a_scope_open() -> None:
    proton.start("p")
    with proton.scope("A", {"m": 1}):
        pass
    with pytest.raises(proton.MetricError), proton.scope("A", {"m": 1.5}):
        pass
    assert proton.context.depth() == 0
    with pytest.raises(proton.UsageError, match="name = 3"):
        proton.start(3, backend="cpu")  # type: ignore[arg-type]
    with pytest.raises(proton.UsageError, match="cannot be called"), proton.scope(""):
        pass


@pytest.mark.parametrize("metrics", [{"m": None}, {"fine": 1, "m": 1j}, [1]])
def test_a_scope_whose_metrics_are_refused_is_not_in_the_profile(tree: Callable[..., dict], metrics: Any) -> None:
    proton.start("p")
    with pytest.raises(proton.MetricError), proton.scope("refused", metrics):
        pass
    with proton.scope("after"), pytest.raises(proton.MetricError), proton.scope("refused", metrics):
        pass
    assert names(tree()) == ["after"] and not tree("after")["children"]
    with pytest.raises(proton.MetricError):
        proton.Profile().add(("refused",), {"m": None})


def test_what_cannot_be_called_is_in_no_scope() -> None:
    with pytest.raises(proton.UsageError, match="classmethod objects cannot be called"):
        proton.scope("A")(classmethod(lambda cls: cls))  # type: ignore[arg-type]


def test_an_array_of_one_element_is_a_number(tree: Callable[..., dict]) -> None:
    """So that visits add up; a list of the user's stays a list."""
    proton.start("p")
    for _ in range(2):
        with proton.scope("A", {"loss": np.array([1.5]), "deep": np.array([[2]]), "own": [3], "two": np.array([1, 2])}):
            pass
    assert tree("A")["metrics"] == {"loss": 3.0, "deep": 4, "own": [6], "two": [2, 4]}


def test_cpu_timed_scope(tree: Callable[..., dict]) -> None:
    proton.start("p")
    with proton.cpu_timed_scope("A", {"m": 1}):
        pass
    metrics = tree("A")["metrics"]
    assert 0 < metrics.pop("cpu_time (ns)") < 1e9
    assert metrics == {"m": 1}
    for key in ("cpu_time", "cpu_time (ns)(exc)"):
        with pytest.raises(ValueError, match="reserved"):
            proton.cpu_timed_scope("A", {key: 1})


def test_a_state_is_the_last_frame_and_the_innermost_counts(tree: Callable[..., dict]) -> None:
    proton.start("p")
    with (
        proton.state("S"),
        proton.scope("C", {"m": 1}),
        proton.state("S2"),
        proton.cpu_timed_scope("D"),
    ):
        pass
    assert tree("C", "S")["metrics"] == {"m": 1}
    assert "cpu_time (ns)" in tree("C", "D", "S2")["metrics"]

    @proton.state("T")
    def f() -> None:
        with proton.scope("E"):
            pass

    f()
    assert names(tree("E")) == ["T"]


def test_deactivated_sessions_record_nothing(tree: Callable[..., dict], launch: Callable) -> None:
    session = proton.start("p")
    with proton.scope("A", {"m": 1}):
        launch("k")
        proton.deactivate(session)
        launch("k")
        with proton.scope("B", {"m": 1}):
            pass
        proton.activate(session)
        launch("k")
    assert names(tree("A")) == ["k"]
    assert tree("A", "k")["metrics"]["count"] == 2


def test_metrics_that_come_while_a_session_is_deactivated_are_not_recorded(tree: Callable[..., dict]) -> None:
    session = proton.start("p")
    proton.enter_scope("A", metrics={"m": 1})
    with proton.cpu_timed_scope("B"):
        proton.deactivate(session)
    proton.exit_scope("A", metrics={"m": 2})
    proton.activate(session)
    assert tree("A")["metrics"] == {"m": 1}
    assert tree("A", "B")["metrics"] == {}


def test_several_sessions_have_their_own_data(tree: Callable[..., dict]) -> None:
    first = proton.start("one")
    with proton.scope("A", {"m": 1}):
        pass
    second = proton.start("two")
    assert (first, second) == (0, 1)
    with proton.scope("B", {"m": 1}):
        pass
    proton.finalize(first)
    with proton.scope("C", {"m": 1}):
        pass
    assert names(tree(session=second)) == ["B", "C"]
    proton.finalize()
    assert names(json.loads(Path("one.hatchet").read_text())[0]) == ["A", "B"]
    assert names(json.loads(Path("two.hatchet").read_text())[0]) == ["B", "C"]


def test_the_same_name_is_the_same_session() -> None:
    session = proton.start("p")
    proton.deactivate(session)
    assert proton.start("p") == session
    assert registry.get(0).active


def test_other_names_of_a_sessions_file_are_that_session(tmp_path: Path) -> None:
    first = proton.start("same")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("./same", str(tmp_path / "same"), "link/same"):
        assert proton.start(name) == first
    assert proton.start("other") != first


def test_a_hook_is_called_while_its_session_is_active(launch: Callable) -> None:
    class Hook:
        calls = 0

        def enter(self, event: object) -> None:
            self.calls += 1

        def exit(self, event: object) -> None:
            pass

    hook, other = Hook(), Hook()
    session = proton.start("p", hook=hook, backend="cpu")
    proton.start("other", hook=other, backend="cpu")
    launch("k")
    proton.deactivate(session)
    launch("k")
    proton.activate(session)
    launch("k")
    proton.finalize(session)
    launch("k")
    assert (hook.calls, other.calls) == (2, 4)


def test_threads_start_with_the_main_threads_scopes(tree: Callable[..., dict]) -> None:
    proton.start("p")
    barrier = threading.Barrier(3)

    def work(number: int) -> None:
        with proton.scope(f"t{number}", {"m": 1}):
            barrier.wait()
            with proton.scope("in", {"m": 1}):
                barrier.wait()

    with proton.scope("main"):
        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert proton.context.depth() == 1
    assert sorted(names(tree("main"))) == ["t0", "t1", "t2"]
    for i in range(3):
        assert tree("main", f"t{i}", "in")["metrics"] == {"m": 1}


def test_one_scope_object_in_many_threads(tree: Callable[..., dict]) -> None:
    proton.start("p")
    shared = proton.scope("shared", {"n": 1})

    def work() -> None:
        for _ in range(200):
            with shared:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tree("shared")["metrics"] == {"n": 800}


def test_python_context_records_the_callers_lines(tree: Callable[..., dict]) -> None:
    proton.start("p", context="python")

    def caller() -> None:
        with proton.scope("ignored", {"m": 1}), proton.state("S"):
            proton.enter_scope("x", metrics={"n": 1})
            proton.exit_scope()

    line = caller.__code__.co_firstlineno
    caller()
    profile = proton.data.get_profile()
    with_m = [path for path, node in profile.walk() if "m" in node.metrics]
    with_n = [path for path, node in profile.walk() if "n" in node.metrics]
    assert [path[-1] for path in with_m] == [f"{__file__}:{line + 1}@caller"]
    assert [path[-2:] for path in with_n] == [(f"{__file__}:{line + 2}@caller", "S")]
    assert not any("/profiler/scopes.py" in frame for path in with_n for frame in path)
    assert proton.context.depth() == len(with_m[0]) - 1


def test_profile_decorator_deactivates_even_on_errors(tree: Callable[..., dict]) -> None:
    @proton.profile(name="p")
    def fails() -> None:
        with proton.scope("A", {"m": 1}):
            raise KeyError

    @proton.profile
    def returns() -> int:
        return 3

    with contextlib.suppress(KeyError):
        fails()
    assert not registry.get(0).active
    assert returns() == 3
    proton.finalize()
    assert Path("p.hatchet").exists() and Path("proton.hatchet").exists()
    assert proton.DEFAULT_PROFILE_NAME == "proton"


def test_profile_decorator_takes_coroutines_and_generators(tree: Callable[..., dict]) -> None:
    @proton.profile(name="p")
    async def waits() -> int:
        with proton.scope("A"):
            await asyncio.sleep(0)
        with proton.scope("B"):
            return 3

    @proton.profile(name="p")
    def gives() -> Iterator[int]:
        with proton.scope("C"):
            pass
        yield 1
        with proton.scope("D"):
            pass

    assert asyncio.run(waits()) == 3 and not registry.active
    for _ in gives():
        assert not registry.active
        with proton.scope("outside"):
            pass
    assert names(tree()) == ["A", "B", "C", "D"] and not registry.active


def test_formats_and_standard_output(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    proton.start("-")
    with proton.scope("A", {"m": 1}):
        pass
    text = proton.data.get_json()
    proton.finalize()
    assert capfdbinary.readouterr().out.decode() == text
    proton.start("")
    packed = proton.data.get_msgpack()
    proton.finalize(output_format="hatchet_msgpack")
    assert capfdbinary.readouterr().out == packed
    proton.start("p{pid}")
    proton.finalize(output_format="hatchet_msgpack")
    assert [path.suffix for path in tmp_path.iterdir()] == [".hatchet_msgpack"]
    assert "{" not in next(tmp_path.iterdir()).name
    proton.start("q")
    with pytest.raises(ValueError, match="unknown output format"):
        proton.finalize(output_format="pdf")
    with pytest.raises(ValueError, match="cannot be written as chrome_trace"):
        proton.finalize(output_format="chrome_trace")


def test_phases(tree: Callable[..., dict]) -> None:
    session = proton.start("p", backend="cpu")
    with proton.scope("A", {"m": 1}):
        assert proton.data.advance_phase(session) == 1
    with proton.scope("B", {"m": 1}):
        pass
    assert names(proton.data.get(session, 0)[0]) == ["A"]
    assert names(proton.data.get(session, 1)[0]) == ["B"]
    assert proton.data.is_phase_complete(session, 0)
    assert not proton.data.is_phase_complete(session, 1)
    proton.data.clear(session, 0)
    with pytest.raises(IndexError, match="phase 0 of session 0 has no data"):
        proton.data.get(session, 0)
    proton.finalize()
    assert sorted(path.name for path in Path().iterdir()) == ["p.part_1.hatchet"]
    assert proton.data.get(None) is None


def test_periodic_flushing_writes_and_drops_complete_phases() -> None:
    session = proton.start("p", mode="periodic_flushing:format=hatchet_msgpack")
    with proton.scope("A", {"m": 1}):
        pass
    proton.data.advance_phase(session)
    assert [path.name for path in Path().iterdir()] == ["p.part_0.hatchet_msgpack"]
    with pytest.raises(IndexError):
        proton.data.get(session, 0)
    proton.finalize()
    assert sorted(path.name for path in Path().iterdir()) == [
        "p.part_0.hatchet_msgpack",
        "p.part_1.hatchet_msgpack",
    ]


def test_a_session_whose_phases_cannot_be_written_leaves_the_others_alone() -> None:
    Path("gone").mkdir()
    lost = proton.start("gone/p", mode="periodic_flushing", backend="cpu")
    kept = proton.start("q", backend="cpu")
    with proton.scope("A", {"m": 1}):
        pass
    Path("gone").rmdir()
    with pytest.raises(proton.ProfileFileError, match="cannot write .*gone/p.part_0.hatchet"):
        proton.data.advance_phase(lost)
    assert proton.data.advance_phase(kept) == 1
    with proton.scope("B", {"m": 1}):
        pass
    proton.deactivate(kept, flushing=True)
    with pytest.raises(proton.ProfileFileError, match="cannot write .*gone/p.part_0.hatchet"):
        proton.deactivate(flushing=True)
    assert not registry.active
    proton.finalize(kept)
    again = proton.start("r", backend="cpu")
    with pytest.raises(proton.ProfileFileError, match="cannot write .*gone/p.part_0.hatchet"):
        proton.finalize()
    assert list(registry.sessions) == [lost] and again not in registry.sessions
    Path("gone").mkdir()
    proton.finalize()
    written = sorted(str(path) for path in Path().rglob("*.hatchet"))
    assert written == [
        "gone/p.part_0.hatchet",
        "gone/p.part_1.hatchet",
        "q.part_0.hatchet",
        "q.part_1.hatchet",
        "r.hatchet",
    ]
    assert names(json.loads(Path("gone/p.part_0.hatchet").read_text())[0]) == ["A"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"context": "bogus"}, "unknown context"),
        ({"data": "bogus"}, "unknown data"),
        ({"backend": "rocprofiler"}, "unknown backend"),
        ({"mode": "pcsampling:interval=0"}, "every 0 cycles"),
        ({"mode": proton.mode.PCSampling(interval=100), "data": "trace"}, "no place on a time line"),
        ({"mode": proton.mode.MMA(), "backend": "instrumentation"}, "put scopes around the products"),
        ({"mode": "bogus"}, "unknown mode"),
        ({"mode": "periodic_flushing:format=pdf"}, "unknown option"),
        ({"mode": "periodic_flushing:format=chrome_trace"}, "cannot be written as chrome_trace"),
        ({"hook": "bogus"}, "unsupported hook"),
        ({"mode": 5}, "unknown mode 5"),
        ({"name": "absent/folder/p"}, "not a folder"),
        ({"name": "./"}, "names a folder"),
        ({"name": ".."}, "names a folder"),
        ({"name": "a\0b"}, "no file can be called"),
        ({"name": "a" * 250}, "no file can be called"),
    ],
)
def test_bad_arguments_start_nothing(arguments: dict, message: str) -> None:
    with pytest.raises(proton.ProfilerError, match=message) as caught:
        proton.start(**arguments)
    assert caught.value.hint
    assert not registry.sessions


def test_unknown_sessions() -> None:
    for function in (proton.activate, proton.deactivate, proton.finalize, proton.data.get):
        with pytest.raises(IndexError, match="Session has not been initialized: 7"):
            function(7)


def test_a_session_that_cannot_be_written_is_kept(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    proton.start("d/p")
    with proton.scope("A", {"m": 1}):
        pass
    (tmp_path / "d").rmdir()
    with pytest.raises(proton.ProfileFileError, match="cannot write"):
        proton.finalize()
    (tmp_path / "d").mkdir()
    proton.finalize()
    assert proton.Profile.read("d/p.hatchet").node(("A",)).metrics == {"m": 1}


def test_the_disable_knob_makes_start_do_nothing() -> None:
    with knobs.proton_disable.scope(True):
        assert proton.start("p") is None
    assert not registry.sessions


def test_finalize_inside_a_scope_and_a_new_session(tree: Callable[..., dict]) -> None:
    proton.start("one")
    with proton.scope("A"):
        proton.finalize()
        proton.start("two")
        with proton.scope("B"):
            pass
    assert names(tree(session=1)) == ["B"]
    with proton.scope("C"):
        assert proton.context.depth() == 1


def test_a_state_leaves_no_frame_unless_something_happens_in_it(tree: Callable[..., dict]) -> None:
    proton.start("p")
    with proton.scope("A"), proton.state("S"):
        assert proton.context.depth() == 2
    assert names(tree("A")) == []


def test_scopes_entered_before_a_session_changes_are_found_again(tree: Callable[..., dict], launch: Callable) -> None:
    proton.start("one")
    with proton.scope("A"), proton.scope("B"):
        second = proton.start("two")
        launch("k")
        with proton.scope("C", {"m": 1}):
            pass
    with proton.scope("D"):
        pass
    for session in (0, second):
        assert tree("A", "B", "k", session=session)["metrics"]["count"] == 1
        assert tree("A", "B", "C", session=session)["metrics"] == {"m": 1}
        assert names(tree(session=session)) == ["A", "D"]
