"""The few driver calls that the profiler needs by itself: is there a GPU, wait for all of them, and which contexts are
in use."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
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
    for device in _devices_in_use(driver):
        _synchronise_primary(driver, device)


def _devices_in_use(driver: ctypes.CDLL) -> Iterator[c_int]:
    """Devices whose primary context is active."""
    for index in range(device_count()):
        device, flags, active = c_int(), c_uint(), c_int()
        if driver.cuDeviceGet(byref(device), c_int(index)):
            continue
        if not driver.cuDevicePrimaryCtxGetState(device, byref(flags), byref(active)) and active.value:
            yield device


def _synchronise_primary(driver: ctypes.CDLL, device: c_int) -> None:
    context = c_void_p()
    if driver.cuDevicePrimaryCtxRetain(byref(context), device):
        return
    if not driver.cuCtxPushCurrent_v2(context):
        driver.cuCtxSynchronize()
        driver.cuCtxPopCurrent_v2(byref(c_void_p()))
    driver.cuDevicePrimaryCtxRelease_v2(device)


class HeldContexts:
    """The CUDA contexts that work may be launched in now: the current one, and those of the devices in use, which stay
    until :meth:`release`. Where there is none yet, that of the first device is made. ``addresses`` are what calls
    take."""

    def __init__(self) -> None:
        self._held: list[c_int] = []
        self.addresses: list[int] = []
        driver = load_driver()
        if driver is None:
            return
        current = c_void_p()
        if not driver.cuCtxGetCurrent(byref(current)) and current.value:
            self.addresses.append(current.value)
        for device in _devices_in_use(driver):
            self._hold(driver, device)
        if not self.addresses:
            self._hold(driver, c_int(0))

    def _hold(self, driver: ctypes.CDLL, device: c_int) -> None:
        context = c_void_p()
        if driver.cuDevicePrimaryCtxRetain(byref(context), device) or not context.value:
            return
        self._held.append(device)
        if context.value not in self.addresses:
            self.addresses.append(context.value)

    def release(self) -> None:
        """Let devices free their contexts again."""
        driver = load_driver()
        for device in self._held:
            if driver is not None:
                driver.cuDevicePrimaryCtxRelease_v2(device)
        self._held.clear()


@contextmanager
def in_context(address: int) -> Iterator[None]:
    """A block in which a context is the calling thread's current one."""
    driver = load_driver()
    pushed = driver is not None and not driver.cuCtxPushCurrent_v2(c_void_p(address))
    try:
        yield
    finally:
        if driver is not None and pushed:
            driver.cuCtxPopCurrent_v2(byref(c_void_p()))
