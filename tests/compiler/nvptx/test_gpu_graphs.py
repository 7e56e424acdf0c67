"""Launches captured in a graph, on a real GPU."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler.errors import DeviceError
from deuteron.compiler.runtime.cuda import driver
from deuteron.compiler.runtime.devices import get_device

pytestmark = pytest.mark.gpu


@deuteron.jit
def add_one(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(x_ptr + offsets, x + 1, mask=offsets < n)


def test_a_graph_launches_as_often_as_it_says() -> None:
    device = get_device("cuda:0")
    x = device.array(np.zeros(1000, np.float32))

    def launch() -> None:
        add_one[(2,)](x, 1000, BLOCK=512)

    launch()
    run = device.repeated(launch, 7)
    assert run is not None
    np.testing.assert_array_equal(x.to_numpy(), np.full(1000, 1.0))
    run()
    run()
    np.testing.assert_array_equal(x.to_numpy(), np.full(1000, 15.0))
    launch()
    np.testing.assert_array_equal(x.to_numpy(), np.full(1000, 16.0))


def test_what_cannot_be_captured_leaves_the_device_as_it_was() -> None:
    device = get_device("cuda:0")
    x = device.array(np.zeros(8, np.float32))
    before = driver.streams.current
    with pytest.raises(DeviceError):
        device.repeated(device.synchronize, 2)
    assert driver.streams.current is before
    add_one[(1,)](x, 8, BLOCK=8)
    np.testing.assert_array_equal(x.to_numpy(), np.full(8, 1.0))
