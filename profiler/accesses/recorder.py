"""Launches run program by program under the interpreter, with every access written down."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from deuteron.compiler.errors import Location
from deuteron.compiler.ir.core import Block, Function, Op
from deuteron.compiler.ir.types import Pointer
from deuteron.compiler.runtime.launch.stand_in import standing
from deuteron.compiler.runtime.variant.variant import Variant
from deuteron.compiler.sanitizer.forms import AccessForm, form_of
from deuteron.compiler.sanitizer.session import line_of
from deuteron.compiler.sanitizer.source_ir import SourceFunctions
from deuteron.compiler.sanitizer.waiting import LoopRounds
from deuteron.compiler.targets.interpreter.memory import Memory
from deuteron.compiler.targets.interpreter.numbers import Array, dtype_of
from deuteron.compiler.targets.interpreter.program import Held, Program
from deuteron.compiler.tile.control import Condition

from .record import AccessKind, AccessRecord, RecordedAccess, RecordedArray, RecordedLaunch, RecordedOperation, Wanted


@contextmanager
def recorded(wanted: Wanted | None = None) -> Iterator[AccessRecord]:
    """Run the launches inside a ``with`` block on the host and record their accesses; the record grows as they run."""
    recorder = AccessRecorder(wanted or Wanted())
    with standing.scope(recorder):
        yield recorder.record


class AccessRecorder:
    """Runs kernels in the place of devices, as their source says, and fills ``record``."""

    def __init__(self, wanted: Wanted) -> None:
        self.record = AccessRecord()
        self.wanted = wanted
        self._functions = SourceFunctions()
        self._lock = threading.Lock()

    def run(self, variant: Variant, grid: tuple[int, int, int], arguments: Mapping[str, Any]) -> None:
        """Run every program of ``grid``; see :class:`~deuteron.compiler.runtime.launch.stand_in.StandIn`.

        Raises:
            CompilationError: the kernel is wrong before it runs.
            LaunchError: arguments do not fit.
            EndlessWait: a program waits for another one for ever.
        """
        with self._lock:
            function, memory, held = self._functions.bound(variant, arguments)
            launch = self._begin(variant, grid, _arrays(function, memory))
            watch = _Watch(self, variant, launch, memory)
            for serial in range(grid[0] * grid[1] * grid[2]):
                chosen = launch is not None and (self.wanted.programs is None or serial in self.wanted.programs)
                if chosen and launch is not None:
                    launch.programs += 1
                RecordingProgram(memory, serial, grid, watch, chosen).block(function.body, held)

    def _begin(
        self, variant: Variant, grid: tuple[int, int, int], arrays: tuple[RecordedArray, ...]
    ) -> RecordedLaunch | None:
        """Count a launch; the record of it if it is wanted."""
        ran, wanted, name = self.record.ran, self.wanted, variant.source.name
        ran[name] = ran.get(name, 0) + 1
        number = sum(ran.values())
        place = number if wanted.kernel is None else ran[name]
        if wanted.kernel not in (None, name) or wanted.launch not in (None, place):
            return None
        launch = RecordedLaunch(name, number, grid, arrays)
        self.record.launches.append(launch)
        return launch


class _Watch:
    """What the programs of one launch share: where their accesses go."""

    def __init__(
        self, recorder: AccessRecorder, variant: Variant, launch: RecordedLaunch | None, memory: Memory
    ) -> None:
        self.kernel = variant.source.name
        self._record = recorder.record
        self._most = recorder.wanted.most_elements
        self._launch = launch
        self._line: Callable[[Location], str] = lambda at: line_of(variant.source, at)
        self._arrays = {id(buffer): number for number, buffer in enumerate(memory.buffers)}
        self._operations: dict[int, int] = {}

    def add(
        self,
        op: Op,
        form: AccessForm,
        at: Location | None,
        origin: object,
        serial: int,
        lanes: Array,
        addresses: Array,
        outside: Array,
    ) -> None:
        """Write an access down, or count it where the record is full. ``outside``: those of ``lanes`` that are."""
        launch = self._launch
        if launch is None:
            return
        count = len(addresses)
        if self._record.elements + count > self._most:
            launch.left_out.accesses += 1
            launch.left_out.elements += count
            launch.left_out.programs.add(serial)
            return
        self._record.elements += count
        active, beyond = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        active[lanes], beyond[outside] = True, True
        array = -1 if origin is None else self._arrays[id(origin)]
        number = self._operation(launch, op, form, at)
        launch.accesses.append(RecordedAccess(number, serial, array, np.array(addresses, np.uint64), active, beyond))

    def _operation(self, launch: RecordedLaunch, op: Op, form: AccessForm, at: Location | None) -> int:
        number = self._operations.get(id(op))
        if number is None:
            number = self._operations[id(op)] = len(launch.operations)
            pointee = form.pointer.type.pointee
            kind = AccessKind.ATOMIC if form.atomic else AccessKind.STORE if form.writes else AccessKind.LOAD
            line = self._line(at).strip() if at else ""
            size = max(1, dtype_of(pointee).itemsize)
            launch.operations.append(RecordedOperation(kind, at, line, form.shape_in(op), pointee.code, size))
        return number


class RecordingProgram(Program):
    """Evaluates operations as the interpreter does. Elements outside arrays are neither read (they are 0) nor written,
    and the program goes on."""

    def __init__(self, memory: Memory, serial: int, grid: tuple[int, int, int], watch: _Watch, chosen: bool) -> None:
        x, y, _ = grid
        super().__init__(memory, (serial % x, serial // x % y, serial // (x * y)), grid)
        self._serial = serial
        self._watch = watch
        self._chosen = chosen
        self._location: Location | None = None
        self._rounds = LoopRounds()

    def evaluate(self, op: Op) -> None:
        """Evaluate ``op``; its line is that of the accesses that it makes."""
        self._location = op.location or self._location
        super().evaluate(op)

    def block(self, block: Block, arguments: Sequence[Held] = ()) -> list[Held]:
        """Run ``block``; raises EndlessWait where it is a loop's and looks at memory for ever."""
        if isinstance(block.terminator, Condition):
            self._rounds.count(block, arguments, self._watch.kernel, self.program_id, self._location)
        return super().block(block, arguments)

    def admitted(self, op: Op, addresses: Array, lanes: Array) -> Array:
        """The lanes that stay inside arrays; the access is recorded with all of them."""
        form = form_of(op)
        origin = self.held[form.pointer].origin
        size = max(1, dtype_of(form.pointer.type.pointee).itemsize)
        fine = self.memory.reachable(addresses[lanes], size, origin, form.writes)
        if self._chosen:
            self._watch.add(op, form, self._location, origin, self._serial, lanes, addresses, lanes[~fine])
        return lanes[fine]


def _arrays(function: Function, memory: Memory) -> tuple[RecordedArray, ...]:
    """The arrays of a launch in the order of the memory's buffers."""
    pointees = {
        p.name: p.value.type.elem.pointee.code for p in function.parameters if isinstance(p.value.type.elem, Pointer)
    }
    return tuple(
        RecordedArray(
            buffer.name,
            pointees.get(buffer.name, str(buffer.array.dtype)),
            buffer.array.itemsize,
            buffer.array.shape,
            buffer.array.strides,
            buffer.start,
            buffer.size,
        )
        for buffer in memory.buffers
    )
