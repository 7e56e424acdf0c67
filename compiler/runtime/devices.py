"""The devices of this machine, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .. import knobs
from ..epoch import Switch
from ..errors import DeviceError
from ..signature import scattered
from .arrays.arguments import NOWHERE, readers
from .cpu.device import CpuDevice
from .cuda.device import CudaDevice
from .cuda.driver import cuda_device_count, why_no_cuda
from .device import Device

_known: dict[str, Device] = {}
_preferred: Switch[Callable[[], str] | None] = Switch(None)


def prefer(name: Callable[[], str]) -> None:
    """Have ``name`` say, at each launch, where arguments that are on no device run, unless DEUTERON_DEVICE does."""
    _preferred.set(name)


def default_moves() -> bool:
    """Whether the default device may be another one at the next launch."""
    return _preferred.value is not None


def get_device(name: str) -> Device:
    """The device called ``cpu`` or ``cuda:0`` (``cuda`` is ``cuda:0``).

    Raises:
        DeviceError: there is no such device here; the message lists those that are.
    """
    found = _known.get(name)
    return found or _known.setdefault(name, _find(name))


def _find(name: str) -> Device:
    kind, _, index = str(name).partition(":")
    if name == "cpu":
        return CpuDevice()
    if name == "cuda":
        return get_device("cuda:0")
    if kind == "cuda" and index.isdigit() and name == f"cuda:{int(index)}":
        return _cuda_device(int(index))
    raise DeviceError(f"unknown device {name!r}", hint=f"devices here: {_present()}")


def list_devices() -> list[Device]:
    """Every device of this machine, the CPU first."""
    names = ["cpu", *(f"cuda:{i}" for i in range(cuda_device_count()))]
    return [get_device(n) for n in names]


def default_device() -> Device:
    """Where arguments that are on no device run: DEUTERON_DEVICE, else what :func:`prefer` was told, else the CPU."""
    return get_device(knobs.device.get() or (_preferred.value() if _preferred.value else "cpu"))


def device_of(arguments: Mapping[str, object]) -> Device:
    """Where the first array is, of ``arguments`` by name and of those in tuples; without one the default device."""
    for value in scattered(arguments).values():
        if hasattr(value, "dtype") or hasattr(value, "shape") or hasattr(value, "__dlpack__"):
            key, _ = readers[type(value)](value)
            text, _, home = key.partition("@") if isinstance(key, str) else ("", "", "")
            if text.startswith(("*", "tensordesc<")) and home != NOWHERE:
                return get_device(home or "cpu")
    return default_device()


def _cuda_device(index: int) -> Device:
    count = cuda_device_count()
    if index >= count:
        why = why_no_cuda() or f"this machine has {count} GPU{'s' if count > 1 else ''}"
        raise DeviceError(f"device 'cuda:{index}' is not present: {why}", hint=f"devices here: {_present()}")
    return CudaDevice(index)


def _present() -> str:
    return ", ".join(["cpu", *(f"cuda:{i}" for i in range(cuda_device_count()))])
