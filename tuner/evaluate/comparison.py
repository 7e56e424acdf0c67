"""Arrays in a device's memory compared with what is expected: on a GPU by a kernel, and here what that does not accept.

A kernel of ours reads both arrays on the device and gives the largest error; only that travels. It follows the rule of
:class:`Expected`, in float64 as well. What it refuses, or what cannot be compared there, is copied to the host, whose
comparison has the last word and words the message.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.runtime.arrays.dtypes import canonical_dtype, numpy_dtype
from deuteron.compiler.runtime.cpu.device import HostArray
from deuteron.compiler.runtime.launch.compiled import CompiledKernel, compile_variant
from deuteron.compiler.runtime.variant.variant import make_variant

from ..workloads.own_kernels import own_source
from ..workloads.tolerance import EXACT, Comparison, Expected, Tolerance

if TYPE_CHECKING:
    from deuteron.compiler.runtime.device import Device, DeviceArray

#: Elements of a step of a program, and programs of a launch: some waves of CTAs on the largest GPUs.
BLOCK, PROGRAMS = 1024, 2048
# Device and host round three times each at most, to 53 bits: what is this far within the tolerance there is so here.
_ACCEPTED = 1 - 2.0**-50
# Of the device's memory, what tensors and expected tensors may take together; kernels need some as well.
_MEMORY_SHARE = 0.5


class Judge:
    """Says whether arrays on a device, named as in ``expected``, hold what they should."""

    def __init__(self, device: Device, arrays: Mapping[str, DeviceArray], expected: Sequence[Expected]) -> None:
        self._arrays, self._expected = arrays, expected
        self._on_device: dict[str, DeviceComparison] = {}
        held = sum(array.nbytes for array in arrays.values()) + sum(each.values.nbytes for each in expected)
        there = device.properties.memory_bytes
        if device.properties.kind == "cuda" and there is not None and held <= _MEMORY_SHARE * there:
            for each in expected:
                made = device_comparison(device, each, arrays[each.name].dtype)
                if made is not None:
                    self._on_device[each.name] = made

    def compare(self) -> Comparison:
        """Compare every expected tensor; the first wrong one gives the message. Waits for the device."""
        worst = 0.0
        for each in self._expected:
            found = self._compare(each)
            worst = max(worst, found.worst)
            if not found.ok:
                return Comparison(worst, found.message)
        return Comparison(worst)

    def _compare(self, expected: Expected) -> Comparison:
        array, there = self._arrays[expected.name], self._on_device.get(expected.name)
        if there is not None:
            worst = there.worst(array)
            if worst <= _ACCEPTED:
                return Comparison(worst)
            there.restore()
        return expected.compare(array.numpy if isinstance(array, HostArray) else array.to_numpy())


class DeviceComparison:
    """An expected tensor in a device's memory, and the kernel that compares arrays of ``dtype`` with it, run by at most
    so many ``programs``. ``repeated``: the elements of the expected tensor are wanted again and again.

    Raises:
        DeuteronError: the device's memory has no room for it, or its target lacks a dtype.
    """

    def __init__(
        self, device: Device, expected: Expected, dtype: str, programs: int = PROGRAMS, *, repeated: bool = False
    ) -> None:
        self._device, self._expected, self._programs = device, expected, programs
        want = canonical_dtype(expected.values.dtype)
        self._kernel = _compiled(dtype, want, expected.exact, repeated, device.target)
        self._want = device.array(expected.values)
        self._errors = device.empty((programs,), "f64")

    def worst(self, got: DeviceArray) -> float:
        """The largest error in ``got``, of the expected tensor's shape unless that is repeated, in units of what is
        allowed there; infinite where exactly one of two elements is NaN or infinite, NaN where a program of the kernel
        stored nothing."""
        import numpy as np

        size = int(np.prod(got.shape, dtype=np.int64))
        errors = self._errors.part(0, (min(-(-size // BLOCK), self._programs),), "f64")
        errors.fill(np.full(1, np.nan))
        expected = self._expected
        arguments = (got, self._want, errors, size, expected.values.size, expected.relative, expected.least)
        self._kernel.run(errors.shape, *arguments, device=self._device)
        return float(np.max(errors.to_numpy(), initial=0.0))

    def restore(self) -> None:
        """Write the expected tensor anew: a kernel may have written beyond its arrays, and into this one."""
        self._want.copy_from(self._expected.values)


def device_comparison(
    device: Device, expected: Expected, dtype: str, *, repeated: bool = False
) -> DeviceComparison | None:
    """The comparison of arrays of ``dtype`` on the device; None where it cannot be made, or does not see what is
    wrong."""
    want = canonical_dtype(expected.values.dtype)
    if expected.exact and want != dtype:
        return None
    try:
        if _sees_what_is_wrong(device, dtype, want, expected.exact, repeated):
            return DeviceComparison(device, expected, dtype, repeated=repeated)
    except DeuteronError:  # no memory left, or a dtype that the target lacks; one that ends the device shows again
        return None
    return None


@functools.cache
def _sees_what_is_wrong(device: Device, dtype: str, want: str, exact: bool, repeated: bool) -> bool:
    """Whether the kernel, as compiled for this device, accepts what is right and refuses one wrong element or one NaN,
    wherever it is: what judges kernels is one itself."""
    import numpy as np

    size = 3 * BLOCK + 5
    right = (np.arange(BLOCK - 3 if repeated else size) % 2).astype(numpy_dtype(want))
    tolerance = EXACT if exact else Tolerance(atol=0.5, rtol=0.0)
    expected = Expected("probe", right, tolerance)
    comparison = DeviceComparison(device, expected, dtype, programs=2, repeated=repeated)
    got = np.resize(right, size).astype(numpy_dtype(dtype))
    array = device.array(got)
    verdicts = [comparison.worst(array) == 0]
    for place in (0, BLOCK - 1, BLOCK, 2 * BLOCK, got.size - 1):
        correct = got[place]
        for value in (1 - int(correct),) if got.dtype.kind in "iub" else (1 - int(correct), np.nan):
            got[place] = value
            array.copy_from(got)
            verdicts.append(comparison.worst(array) > 1)
            got[place] = correct
    return all(verdicts)


@functools.cache
def _compiled(got: str, want: str, exact: bool, repeated: bool, target: str) -> CompiledKernel:
    """The kernel for arrays of these dtypes, from the cache that all processes share where that has it. What is
    compared with a repeated one may be a part of an array that begins anywhere."""
    signature = {
        "got_ptr": f"*{got}" if repeated else f"*{got}:16",
        "want_ptr": f"*{want}:16",
        "errors_ptr": "*f64:16",
        "size": "i64",
        "period": "i64",
        "relative": "f64",
        "least": "f64",
    }
    constants = {"EXACT": exact, "REPEATED": repeated, "BLOCK": BLOCK}
    return compile_variant(make_variant(own_source("largest_error"), signature, constants, target, {}))
