"""What sessions record under which names: metrics that viewers can read, kernels as they are launched."""

from __future__ import annotations

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
