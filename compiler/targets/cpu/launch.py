"""Running loaded machine code on a grid."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from ...errors import KernelAssertionError, LaunchError
from ...ir.types import Pointer, Tile
from ...llvm.driver import LoadedObject
from ...scalar_arguments import ENCODERS, fitting
from .arena import ALIGNMENT
from .debug import STATUS_BYTES
from .pool import Run, thread_pool
from .printing import PrintRecord, print_values
from .program import INFO_SYMBOL
from .records import CLOCK_SYMBOL

_ENTRY = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
_PRINT = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)

_FORMATS = {
    "i1": "?7x",
    "i8": "b7x",
    "u8": "B7x",
    "i16": "h6x",
    "u16": "H6x",
    "i32": "i4x",
    "u32": "I4x",
    "i64": "q",
    "u64": "Q",
    "f16": "e6x",
    "f32": "f4x",
    "f64": "d",
}


class LoadedKernel:
    """Machine code of one kernel, ready to run. It may be launched from several threads at once. ``parameters``: what
    messages call its arguments."""

    def __init__(self, object_code: bytes, name: str, parameters: Sequence[str] = ()) -> None:
        self.name = name
        self._parameters = tuple(parameters)
        self._object = LoadedObject(object_code)
        self._clock: Callable[[], int] | None = None
        self.address = self._object.address(name)
        self._entry = _ENTRY(self.address)
        info = json.loads(ctypes.string_at(self._object.data_address(INFO_SYMBOL)))
        self.scratch_bytes: int = info["scratch_bytes"]
        self.asserts: list[tuple[str, str]] = [(m, w) for m, w in info["asserts"]]
        self.prints = [PrintRecord.from_json(p) for p in info["prints"]]

    def clock(self) -> int:
        """The counter that an instrumented kernel records; raises TargetError for another one."""
        if self._clock is None:
            self._clock = ctypes.CFUNCTYPE(ctypes.c_int64)(self._object.address(CLOCK_SYMBOL))
        return int(self._clock())

    def launch(
        self,
        grid: tuple[int, int, int],
        arguments: Sequence[int | float],
        parameter_types: Sequence[Tile],
        threads: int | None = None,
        cooperative: bool = False,
    ) -> None:
        """Run all programs and return when they are done.

        ``arguments``: addresses for pointers, numbers for scalars. ``threads``: None for one per core;
        ``cooperative``: one for each program, so that they may wait for each other.

        Raises:
            LaunchError: the arguments do not fit their types, the grid is not three sizes from 0 to 2**31 - 1, or a
                cooperative one has more programs than there are threads.
            KernelAssertionError: a ``tl.device_assert`` failed; programs that had not begun were not run, unless the
                launch is cooperative.
        """
        if len(grid) != 3 or any(not 0 <= n < 1 << 31 for n in grid):
            raise LaunchError(f"grid {grid}", hint="give three sizes from 0 to 2**31 - 1")
        packed = pack_arguments(arguments, parameter_types, self.name, self._parameters)
        total = grid[0] * grid[1] * grid[2]
        failures: list[tuple[int, int]] = []
        run = self._runner(grid, packed, failures)
        if total and cooperative:
            thread_pool().execute_together(total, run)
        elif total:
            thread_pool().execute(total, threads or os.cpu_count() or 1, run)
        if failures:
            raise self._assertion(grid, *min(failures))

    def launch_some(
        self,
        programs: Iterable[int],
        grid: tuple[int, int, int],
        arguments: Sequence[int | float],
        parameter_types: Sequence[Tile],
    ) -> None:
        """Run some programs of a grid, by their linear numbers, one after the other on the calling thread.

        Raises as :meth:`launch`.
        """
        packed = pack_arguments(arguments, parameter_types, self.name, self._parameters)
        failures: list[tuple[int, int]] = []
        run = self._runner(grid, packed, failures)
        for program in programs:
            if not run(program, program + 1):
                raise self._assertion(grid, *failures[0])

    def _runner(self, grid: tuple[int, int, int], packed: bytes, failures: list[tuple[int, int]]) -> Run:
        """What runs a range of programs; a failed assertion is added to ``failures``."""
        sizes = (ctypes.c_int32 * 3)(*grid)
        printer = self._printer(grid) if self.prints else None

        def run(first: int, last: int) -> bool:
            status = (ctypes.c_int64 * (STATUS_BYTES // 8))()
            if printer is not None:
                status[2] = ctypes.cast(printer, ctypes.c_void_p).value or 0
            self._entry(packed, first, last, ctypes.addressof(sizes), scratch(self.scratch_bytes), status)
            if status[0]:
                failures.append((status[1], status[0]))
                return False
            return True

        return run

    def _printer(self, grid: tuple[int, int, int]) -> ctypes._FuncPointer:
        def show(record: int, program: int, table: int) -> None:
            print_values(self.prints[record], position(grid, program), table)

        return _PRINT(show)

    def _assertion(self, grid: tuple[int, int, int], program: int, code: int) -> KernelAssertionError:
        message, where = self.asserts[code - 1]
        place = f"{where}: " if where else ""
        return KernelAssertionError(
            f"{place}device-side assertion failed in program {position(grid, program)} of {self.name}: {message}"
        )


def position(grid: tuple[int, int, int], program: int) -> tuple[int, int, int]:
    """The three program ids of a linear program number."""
    x, y, _ = grid
    return program % x, program // x % y, program // (x * y)


def load(object_code: bytes, name: str, parameters: Sequence[str] = ()) -> LoadedKernel:
    """Link an object file that :func:`emit_object` made into this process."""
    return LoadedKernel(object_code, name, parameters)


@cache
def _packer(codes: tuple[str, ...]) -> struct.Struct:
    return struct.Struct("<" + "".join(codes))


def pack_arguments(
    arguments: Sequence[int | float], parameter_types: Sequence[Tile], kernel: str, names: Sequence[str]
) -> bytes:
    """One 8-byte slot for each argument; raises LaunchError where one does not fit its type. ``names``, of arguments
    that have one, are for messages, as is ``kernel``."""
    if len(arguments) != len(parameter_types):
        raise LaunchError(
            f"{len(arguments)} arguments for {len(parameter_types)} parameters",
            hint="give a value for every parameter that is not a constexpr",
        )
    codes, values = [], []
    for value, type in zip(arguments, parameter_types, strict=True):
        if isinstance(type.elem, Pointer):
            codes.append("Q")
        elif type.elem.code in _FORMATS:
            codes.append(_FORMATS[type.elem.code])
        else:
            codes.append("Q")
            value = ENCODERS[type.elem.code](float(value))
        values.append(value)
    packer = _packer(tuple(codes))
    try:
        return packer.pack(*values)
    except (struct.error, OverflowError):  # the latter for floats
        for i, (value, type) in enumerate(zip(values, parameter_types, strict=True)):
            if type.elem.code not in ENCODERS:
                values[i] = fitting(f"{kernel}: argument {(names[i] if i < len(names) else i)!r}", value, type)
        return packer.pack(*values)


_local = threading.local()


def scratch(size: int) -> int:
    """The address of at least ``size`` bytes, 64-byte aligned, that belong to the calling thread."""
    held: tuple[int, int, object] | None = getattr(_local, "scratch", None)
    if held is None or held[0] < size:
        memory = ctypes.create_string_buffer(size + ALIGNMENT)
        address = -(-ctypes.addressof(memory) // ALIGNMENT) * ALIGNMENT
        held = (size, address, memory)
        _local.scratch = held
    return held[1]
