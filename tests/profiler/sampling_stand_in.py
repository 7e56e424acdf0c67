"""libcupti and the driver as a session that samples sees them: kernels of one context that run one at a time, whose
rows CUPTI adds to the configured buffer when they end, and moves to others from there."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest
from test_pc_sampling import CONTEXT, FakeCupti, Row

from deuteron.profiler.sources import driver, locate, pc_sampling
from deuteron.profiler.sources import pc_structures as c
from deuteron.profiler.sources.callbacks import CORRELATION_ID_OFFSET
from deuteron.profiler.sources.native import native_callbacks
from deuteron.profiler.sources.records import KIND_CONCURRENT_KERNEL

LAUNCH_KERNEL = 307
_MIB = 1 << 20
_MULTIPLE_SUBSCRIBERS = 39


class FakeDriver:
    """``active``: contexts of the devices in use, by device; others have none yet."""

    def __init__(self, devices: int = 1, active: dict[int, int] | None = None) -> None:
        self.devices = devices
        self.active = dict(active or {})
        self.retained: list[int] = []
        self.threads = threading.local()
        self.synchronised: list[int] = []

    @property
    def stack(self) -> list[int]:
        """The calling thread's contexts, the current one last."""
        if not hasattr(self.threads, "stack"):
            self.threads.stack = []
        return self.threads.stack

    def cuInit(self, flags: Any) -> int:  # noqa: N802
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802
        count._obj.value = self.devices
        return 0

    def cuDeviceGet(self, device: Any, index: Any) -> int:  # noqa: N802
        device._obj.value = index.value
        return 0

    def cuDevicePrimaryCtxGetState(self, device: Any, flags: Any, active: Any) -> int:  # noqa: N802
        active._obj.value = device.value in self.active
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: Any) -> int:  # noqa: N802
        self.retained.append(device.value)
        context._obj.value = self.active.setdefault(device.value, CONTEXT + device.value)
        return 0

    def cuDevicePrimaryCtxRelease_v2(self, device: Any) -> int:  # noqa: N802
        self.retained.remove(device.value)
        return 0

    def cuCtxGetCurrent(self, context: Any) -> int:  # noqa: N802
        context._obj.value = self.stack[-1] if self.stack else None
        return 0

    def cuCtxPushCurrent_v2(self, context: Any) -> int:  # noqa: N802
        self.stack.append(context.value)
        return 0

    def cuCtxPopCurrent_v2(self, context: Any) -> int:  # noqa: N802
        context._obj.value = self.stack.pop()
        return 0

    def cuCtxSynchronize(self) -> int:  # noqa: N802
        self.synchronised.append(self.stack[-1])
        return 0


class SerializedCupti(FakeCupti):
    """Also serves a source of kernel records, of which it has none."""

    def __init__(self, driver: FakeDriver, fails: dict[str, int] | None = None) -> None:
        super().__init__(fails)
        self.driver = driver
        self._name = "libcupti.so"
        self.version = 130000
        self.activities: set[int] = set()
        self.subscribed = False
        self.kept: list[Row] = []
        self.lock = threading.Lock()
        self.cuptiGetGraphNodeId = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0)
        self.native = native_callbacks(_MIB)
        self.taken = self.has_sampled = False
        self.unseen: set[bytes] = set()

    def load(self, name: bytes) -> None:
        """The program loads a kernel. Once CUPTI has sampled, it learns of those that it sees being loaded only."""
        if self.has_sampled and not self.activities:
            self.unseen.add(name)

    def _Enable(self, parameters: c.ContextParameters) -> None:  # noqa: N802
        self.has_sampled = True

    def cuptiFinalize(self) -> int:  # noqa: N802
        assert self.idle
        self.calls.append("Finalize")
        self.has_sampled = False
        self.unseen.clear()
        return self.fails.get("Finalize", 0)

    def _called(self, short: str) -> None:
        assert self.driver.stack[-1:] == [CONTEXT], f"{short} in another context"

    def launch(self, correlation: int) -> None:
        """The calling thread enters the driver's launch."""
        data = ctypes.create_string_buffer(128)
        ctypes.c_uint32.from_buffer(data, CORRELATION_ID_OFFSET).value = correlation
        called = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)
        called(self.native.called)(None, 1, LAUNCH_KERNEL, ctypes.addressof(data))

    def kernel(self, correlation: int, *rows: Row) -> None:
        """A kernel is launched, and ends; the rows are of its samples."""
        self.launch(correlation)
        with self.lock:
            self.kept += [row for row in rows if row[0] not in self.unseen]
            self._show()

    def _show(self) -> None:
        configured = self.attributes[c.SAMPLING_DATA_BUFFER]
        assert len(self.kept) <= c.SamplingData.from_address(configured).collectNumPcs
        self.fill(configured, self.kept)

    def _GetData(self, parameters: c.DataParameters) -> None:  # noqa: N802
        assert parameters.pcSamplingData != self.attributes[c.SAMPLING_DATA_BUFFER]
        with self.lock:
            now, self.kept = self.kept[: self.at_once], self.kept[self.at_once :]
            self.fill(parameters.pcSamplingData, now)
            data = c.SamplingData.from_address(parameters.pcSamplingData)
            data.remainingNumPcs, data.droppedSamples, self.dropped = 0, self.dropped, 0
            self._show()

    def cuptiSubscribe(self, subscriber: Any, callback: Any, user: Any) -> int:  # noqa: N802
        if self.taken:
            return _MULTIPLE_SUBSCRIBERS
        self.subscribed = True
        return 0

    def cuptiUnsubscribe(self, subscriber: Any) -> int:  # noqa: N802
        self.subscribed = False
        return 0

    def cuptiActivityRegisterCallbacks(self, requested: Any, completed: Any) -> int:  # noqa: N802
        return 0

    def cuptiGetTimestamp(self, time: Any) -> int:  # noqa: N802
        time._obj.value = 1
        return 0

    def cuptiActivityEnable(self, kind: Any) -> int:  # noqa: N802
        self.activities.add(kind.value)
        return 0

    def cuptiActivityDisable(self, kind: Any) -> int:  # noqa: N802
        self.activities.discard(kind.value)
        return 0

    def cuptiEnableCallback(self, wanted: Any, subscriber: Any, domain: Any, call: Any) -> int:  # noqa: N802
        return 0

    def cuptiActivityFlushAll(self, how: Any) -> int:  # noqa: N802
        return 0

    def cuptiActivityGetNumDroppedRecords(self, context: Any, stream: Any, dropped: Any) -> int:  # noqa: N802
        return 0

    @property
    def idle(self) -> bool:
        """Whether nothing is on any more."""
        return not self.subscribed and KIND_CONCURRENT_KERNEL not in self.activities and not self.driver.retained


def install(monkeypatch: pytest.MonkeyPatch, cupti: SerializedCupti) -> None:
    """Take the places of libcupti and of the driver."""
    monkeypatch.setattr(driver, "load_driver", lambda: cupti.driver)
    monkeypatch.setattr(locate, "load_cupti", lambda library=None: cupti)
    monkeypatch.setattr(pc_sampling, "_sampled", False)
    monkeypatch.setenv("DEUTERON_PROFILE_BUFFER_SIZE", str(_MIB))
