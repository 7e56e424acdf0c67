"""Launches on the CPU target: timed by the launcher's clock, named and measured by launch_metadata."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from child_names import names

import deuteron.profiler as proton
from deuteron.compiler.runtime.launch import hooks
from deuteron.profiler.hooks.launch import LaunchHook


def test_cpu_launches_are_leaves_with_their_time(tree: Callable[..., dict], launch: Callable) -> None:
    proton.start("p")
    with proton.scope("A"):
        launch("add", {"flops": 1}, duration_ns=300)
        launch("add", {"flops": 1}, duration_ns=200)
    launch("mul", duration_ns=7)
    assert tree("A", "add")["metrics"] == {
        "count": 2,
        "time (ns)": 500,
        "device_id": "0",
        "device_type": "CPU",
    }
    assert tree("mul")["metrics"]["time (ns)"] == 7
    assert tree()["metrics"] == {"count": 0, "time (ns)": 0}


def test_the_launch_hook_is_installed_only_while_a_session_is_active() -> None:
    assert hooks.installed.hooks == ()
    session = proton.start("p")
    proton.start("q")
    assert len(hooks.installed.hooks) == 1
    proton.deactivate(session)
    assert len(hooks.installed.hooks) == 1
    proton.deactivate()
    assert hooks.installed.hooks == ()


def test_metadata_names_the_node_and_gives_metrics(tree: Callable[..., dict], launch: Callable) -> None:
    proton.start("p", hook="triton")
    metadata = {
        "name": "matmul_64",
        "flops16": 128,
        "bytes": 64.0,
        "bias": np.float32(0.5),
        "v": np.array([1, 2]),
        "tag": "ignored",
        "function": 1,
        "stream": 2,
    }
    with proton.scope("A"):
        launch("matmul", metadata, duration_ns=10)
        launch("matmul", metadata, duration_ns=20)
    assert names(tree("A")) == ["matmul_64"]
    assert tree("A", "matmul_64")["metrics"] == {
        "flops16": 256.0,
        "bytes": 128,
        "bias": 1.0,
        "v": [2, 4],
        "count": 2,
        "time (ns)": 30,
        "device_id": "0",
        "device_type": "CPU",
    }


def test_launches_made_by_metadata_are_booked_under_the_metadata_state(
    tree: Callable[..., dict], launch: Callable
) -> None:
    proton.start("p", hook="triton")

    def metadata() -> dict[str, object]:
        launch("helper", lambda: pytest.fail("metadata of a launch made by metadata"))
        return {"name": "renamed"}

    with proton.scope("A"):
        launch("kernel", metadata)
    assert names(tree("A")) == ["__proton_launch_metadata", "renamed"]
    assert names(tree("A", "__proton_launch_metadata")) == ["kernel"]
    assert tree("A", "__proton_launch_metadata", "kernel", "helper")["metrics"]["count"] == 1


def test_launches_made_by_reading_a_metric_are_booked_as_metadata(tree: Callable[..., dict], launch: Callable) -> None:
    proton.start("p")

    class Tensor:
        def tolist(self) -> float:
            launch("copy")
            return 2.5

    with proton.scope("A", {"loss": Tensor()}):
        launch("kernel")
    assert tree("A")["metrics"] == {"loss": 2.5}
    assert names(tree("A")) == ["__proton_launch_metadata", "kernel"]
    assert names(tree("A", "__proton_launch_metadata")) == ["copy"]


def test_an_error_in_metadata_is_the_callers_and_leaves_no_state(tree: Callable[..., dict], launch: Callable) -> None:
    proton.start("p", hook="triton")

    def metadata() -> dict[str, object]:
        raise KeyError("user bug")

    with pytest.raises(KeyError, match="user bug"):
        launch("kernel", metadata)
    launch("kernel", {"flops": 1})
    assert names(tree()) == ["kernel"]
    assert tree("kernel")["metrics"]["count"] == 1


def test_a_launch_that_raises_is_not_counted(tree: Callable[..., dict], launch: Callable) -> None:
    proton.start("p")

    def boom() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        launch("k", body=boom)
    launch("k")
    assert tree("k")["metrics"]["count"] == 1


def test_without_the_hook_metadata_is_not_evaluated(launch: Callable) -> None:
    proton.start("p")
    launch("k", lambda: pytest.fail("metadata evaluated"))


def test_only_the_session_with_the_hook_gets_metadata(tree: Callable[..., dict], launch: Callable) -> None:
    plain = proton.start("plain")
    hooked = proton.start("hooked", hook="triton")
    launch("k", {"name": "n", "flops": 2})
    assert names(tree(session=plain)) == ["k"]
    assert names(tree(session=hooked)) == ["n"]


def test_metadata_of_chosen_kernels(tree: Callable[..., dict], launch: Callable) -> None:
    proton.start("p", hook=proton.LaunchMetadata(include="mat", exclude=".*_tiny"))
    launch("matmul", {"name": "matmul_big"})
    launch("matmul", {"name": "matmul_tiny"})
    launch("softmax", lambda: pytest.fail("not chosen"))
    assert names(tree()) == ["matmul_big", "matmul", "softmax"]
    with pytest.raises(proton.UsageError, match="not a regular expression"):
        proton.LaunchMetadata(include="(")


def test_any_launch_hook_can_be_given(launch: Callable) -> None:
    seen = []

    class Mine:
        def enter(self, event: hooks.LaunchEvent) -> None:
            seen.append(("enter", event.name))

        def exit(self, event: hooks.LaunchEvent) -> None:
            seen.append(("exit", event.name))

    proton.start("p", hook=Mine())
    launch("k")
    proton.finalize()
    launch("k")
    assert seen == [("enter", "k"), ("exit", "k")]
    assert hooks.installed.hooks == ()


def test_python_context_puts_launches_below_their_line(launch: Callable) -> None:
    proton.start("p", context="python")
    launch("k")
    paths = [path for path, node in proton.data.get_profile().walk() if "count" in node.metrics]
    assert len(paths) == 1
    assert paths[0][-1] == "k"
    assert any(frame.endswith("@test_python_context_puts_launches_below_their_line") for frame in paths[0])
    assert not any("/compiler/runtime/" in frame for frame in paths[0])


def test_there_is_one_launch_hook_and_it_keeps_its_choice(tree: Callable[..., dict], launch: Callable) -> None:
    hook = LaunchHook()
    hook.configure(include="mat")
    try:
        assert LaunchHook() is hook and isinstance(hook, proton.LaunchMetadata)
        assert not LaunchHook().wants("add"), "a second call must not choose anew"
        proton.start("p", hook=LaunchHook())
        launch("matmul", {"name": "matmul_64"})
        launch("add", {"name": "add_64"})
        assert names(tree()) == ["matmul_64", "add"]
    finally:
        hook.configure()
    assert hook.wants("add")
