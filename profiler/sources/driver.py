"""The few driver calls that the profiler needs by itself: is there a GPU, and wait for all of them."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_uint, c_void_p
from functools import lru_cache


@lru_cache(maxsize=1)
def load_driver() -> ctypes.CDLL | None:
    """libcuda, or None where no NVIDIA driver is installed."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def device_count() -> int:
    """GPUs that this process may use; 0 without a driver. Initialises the driver."""
    driver = load_driver()
    count = c_int()
    if driver is None or driver.cuInit(c_uint(0)) or driver.cuDeviceGetCount(byref(count)):
        return 0
    return count.value


def synchronise_devices() -> None:
    """Wait until the current context and every device in use have finished all work."""
    driver = load_driver()
    if driver is None:
        return
    current = c_void_p()
    if not driver.cuCtxGetCurrent(byref(current)) and current.value:
        driver.cuCtxSynchronize()
    for index in range(device_count()):
        device, flags, active = c_int(), c_uint(), c_int()
        if driver.cuDeviceGet(byref(device), c_int(index)):
            continue
        if driver.cuDevicePrimaryCtxGetState(device, byref(flags), byref(active)) or not active.value:
            continue
        _synchronise_primary(driver, device)


def _synchronise_primary(driver: ctypes.CDLL, device: c_int) -> None:
    context = c_void_p()
    if driver.cuDevicePrimaryCtxRetain(byref(context), device):
        return
    if not driver.cuCtxPushCurrent_v2(context):
        driver.cuCtxSynchronize()
        driver.cuCtxPopCurrent_v2(byref(c_void_p()))
    driver.cuDevicePrimaryCtxRelease_v2(device)
