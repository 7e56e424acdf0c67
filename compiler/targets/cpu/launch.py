"""Running loaded machine code on a grid."""

from __future__ import annotations

import ctypes
import json
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from ...errors import KernelAssertionError, LaunchError
from ...ir.types import Pointer, Tile
from ...llvm.driver import LoadedObject
from ...scalar_arguments import ENCODERS, fitting
from .pool import ENTRY, GridLaunch, thread_pool
from .printing import PrintRecord, print_values
from .program import INFO_SYMBOL
from .records import CLOCK_SYMBOL

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
        self._entry = ENTRY(self.address)
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
        launch, total = self._launch(grid, arguments, parameter_types), grid[0] * grid[1] * grid[2]
        if total and cooperative:
            thread_pool().execute_together(total, launch)
        elif total:
            thread_pool().execute(total, threads or os.cpu_count() or 1, launch)
        if launch.failures:
            raise self._assertion(grid, *min(launch.failures))

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
        launch = self._launch(grid, arguments, parameter_types)
        for program in programs:
            if not launch.run(program, program + 1):
                raise self._assertion(grid, *launch.failures[0])

    def _launch(
        self, grid: tuple[int, int, int], arguments: Sequence[int | float], parameter_types: Sequence[Tile]
    ) -> GridLaunch:
        packed = pack_arguments(arguments, parameter_types, self.name, self._parameters)
        printer = self._printer(grid) if self.prints else None
        return GridLaunch(self._entry, packed, grid, self.scratch_bytes, printer)

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
