"""Sessions: several beside each other, deactivated, finalized, refused, or with scopes that are open meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from child_names import names

import deuteron.profiler as proton
from deuteron.compiler import knobs
from deuteron.profiler.session import registry


def test_nothing_happens_without_a_session(tmp_path: Path) -> None:
    with proton.scope("a", {"x": 1}), proton.cpu_timed_scope("b"), proton.state("s"):
        assert proton.enter_scope("c") is None
        assert proton.exit_scope() is None
    assert proton.context.depth() is None
    proton.finalize()
    assert list(tmp_path.iterdir()) == []


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
