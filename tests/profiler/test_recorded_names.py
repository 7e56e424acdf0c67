"""What sessions record under which names: metrics that viewers can read, kernels as they are launched."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
import deuteron.profiler as proton
from deuteron.profiler import viewer


@pytest.mark.parametrize("name", ["name", "node", "node (exc)"])
def test_a_metric_that_viewers_could_not_read_is_refused(name: str) -> None:
    proton.start("p", backend="cpu")
    with pytest.raises(proton.MetricError, match="use the name themselves"), proton.scope("x", {name: 1}):
        pass
    with pytest.raises(proton.MetricError, match="number of 1025 bits"), proton.scope("x", {"m": 1 << 1024}):
        pass
    with proton.scope("x", {"m": (1 << 1023) - 1}):
        pass
    assert viewer.render(proton.data.get_profile(), ["m"])


class Step(StrEnum):
    FORWARD = "forward"


def test_names_may_be_of_any_class_of_texts(tree: Callable[..., dict]) -> None:
    """They were refused, as no strings."""
    proton.start("p", backend="cpu")
    with proton.scope(Step.FORWARD), proton.state(Step.FORWARD), proton.scope(np.str_("inner"), {"m": 1}):
        pass
    proton.enter_scope(Step.FORWARD)
    proton.exit_scope("forward")
    assert '"name": "forward"' in proton.data.get_json()
    assert tree("forward", "inner", "forward")["metrics"] == {"m": 1}


@pytest.mark.parametrize("name", [None, 5, b"x", ""])
def test_names_that_are_no_text_are_refused_where_they_are_given(name: Any) -> None:
    """That of a state was an AttributeError of what was recorded next, and the empty one a frame without a name."""
    proton.start("p", backend="cpu")
    with pytest.raises(proton.UsageError, match="a state cannot be called"), proton.state(name):
        pass
    with pytest.raises(proton.UsageError, match="a scope cannot be called"), proton.scope(name):
        pass


def test_long_doubles_are_numbers(tree: Callable[..., dict]) -> None:
    """They were a RecursionError."""
    proton.start("p", backend="cpu")
    number = np.longdouble(2.5)
    with proton.scope("x", {"m": number, "v": np.array([number, number])}):
        pass
    assert tree("x")["metrics"] == {"m": 2.5, "v": [2.5, 2.5]}
    with pytest.raises(proton.MetricError, match="of type complex"), proton.scope("x", {"c": np.clongdouble(1)}):
        pass


def test_launch_metadata_may_ask_for_shared_memory_as_in_protons_tutorials() -> None:
    @deuteron.jit(launch_metadata=lambda grid, metadata, arguments: {"name": f"k{metadata.shared}", "flops": 2})
    def kernel(x):
        tl.store(x, 1.0)

    proton.start("p", backend="cpu", hook="triton")
    kernel[(1,)](np.zeros(1, np.float32))
    assert [child["frame"]["name"] for child in proton.data.get()[0]["children"]] == ["k0"]


def test_python_frames_are_the_users() -> None:
    @deuteron.jit
    def kernel(x):
        tl.store(x, 1.0)

    proton.start("p", backend="cpu", context="python")
    kernel[(1,)](np.zeros(1, np.float32))
    names = []
    node = proton.data.get()[0]
    while node["children"]:
        (node,) = node["children"]
        names.append(node["frame"]["name"])
    assert names[-1] == "kernel"
    assert names[-2].endswith("@test_python_frames_are_the_users")
