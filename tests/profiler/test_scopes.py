"""Scopes: how they nest, decorate, time and hold metrics. Trees are those that Proton 3.9 records for these calls."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child_names import names

import deuteron.profiler as proton


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


def test_a_state_leaves_no_frame_unless_something_happens_in_it(tree: Callable[..., dict]) -> None:
    proton.start("p")
    with proton.scope("A"), proton.state("S"):
        assert proton.context.depth() == 2
    assert names(tree("A")) == []
