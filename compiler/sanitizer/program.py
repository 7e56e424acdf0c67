"""A program of the interpreter that looks at every access, branch and assertion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ..errors import KernelAssertionError, Location
from ..ir.core import Block, Effect, Op, Value
from ..targets.interpreter.memory import Memory
from ..targets.interpreter.numbers import Array, dtype_of
from ..targets.interpreter.program import Held, Program
from ..tile import blocks
from ..tile import control as c
from ..tile import debug as d
from ..tile import memory as m
from .findings import Finding, FindingKind, Report, SourcePlace
from .forms import AccessForm, form_of
from .labels import labels_of, propagate
from .shadow import RaceWith, Shadow
from .waiting import LoopRounds


@dataclass(frozen=True, slots=True)
class Unreliable:
    """Why elements have a label: where they were loaded, of which array, and what is wrong with them."""

    kind: FindingKind
    place: SourcePlace
    array: str


@dataclass
class CheckedLaunch:
    """What the programs of one launch share."""

    kernel: str
    report: Report
    shadow: Shadow
    grid: tuple[int, int, int]
    line_of: Callable[[Location], str]
    reasons: list[Unreliable] = field(default_factory=list)
    _labels: dict[Unreliable, int] = field(default_factory=dict)
    _places: dict[Location | None, SourcePlace] = field(default_factory=dict)

    def label(self, reason: Unreliable) -> int:
        """The number that stands for ``reason``, from 1."""
        if reason not in self._labels:
            self.reasons.append(reason)
            self._labels[reason] = len(self.reasons)
        return self._labels[reason]

    def place(self, location: Location | None) -> SourcePlace:
        """A location with its line."""
        if location not in self._places:
            self._places[location] = SourcePlace(location, self.line_of(location) if location else "")
        return self._places[location]

    def program_id(self, serial: int) -> tuple[int, int, int]:
        """The program that is the ``serial``-th to run."""
        x, y, _ = self.grid
        return serial % x, serial // x % y, serial // (x * y)


class CheckedProgram(Program):
    """Evaluates operations as the interpreter does, and adds what is wrong to the report.

    What must not happen does not: elements outside arrays are neither read (they are 0) nor written.
    """

    def __init__(self, memory: Memory, serial: int, watch: CheckedLaunch, on_print: Callable[[str], object]) -> None:
        super().__init__(memory, watch.program_id(serial), watch.grid, on_print)
        self.serial = serial
        self.watch = watch
        self._location: Location | None = None
        self._rounds = LoopRounds()
        #: Of the last access: labels of what it read, one a lane of the tile.
        self._loaded: Array | None = None

    # ---- operations --------------------------------------------------------------------------------------------

    def evaluate(self, op: Op) -> None:
        """Evaluate ``op``; a false assertion is a finding and the program goes on."""
        self._location = op.location or self._location
        self._decisions(op)
        try:
            super().evaluate(op)
        except KernelAssertionError as error:
            if not isinstance(op, d.Assert | d.Assume):
                raise
            self._found(FindingKind.ASSERTION, error.message, "", (), 1)
            return
        if isinstance(op, m.Load | m.AtomicRMW | blocks.BlockLoad):
            self._label(op.results, [self._labels_of_load(op)])
        elif op.effect is Effect.PURE:
            self._label(op.results, propagate(op, self))

    def _label(self, results: Sequence[Value], labels: Sequence[Array | None]) -> None:
        for value, made in zip(results, labels, strict=True):
            if made is not None and made.any():
                self.held[value] = self.held[value]._replace(labels=made)

    def block(self, block: Block, arguments: Sequence[Held] = ()) -> list[Held]:
        """Run ``block``; raises EndlessWait where it is a loop's and looks at memory for ever."""
        end = block.terminator
        if isinstance(end, c.Condition):
            self._rounds.count(block, arguments, self.watch.kernel, self.program_id, self._location)
        made = super().block(block, arguments)
        if isinstance(end, c.Condition):
            self._use(end.condition, None, "decides whether a loop goes on")
        return made

    def _decisions(self, op: Op) -> None:
        match op:
            case c.If():
                self._use(op.condition, None, "decides a branch")
            case c.For():
                for bound in (op.lower, op.upper, op.step):
                    self._use(bound, None, "is a bound of a loop")
            case d.Assert() | d.Assume():
                self._use(op.condition, None, "decides an assertion")

    # ---- accesses ----------------------------------------------------------------------------------------------

    def admitted(self, op: Op, addresses: Array, lanes: Array) -> Array:
        """The lanes that stay inside arrays. Reports the others, races, and operands that nobody may use."""
        form = form_of(op)
        self._where(form, lanes)
        pointer = self.held[form.pointer]
        if pointer.labels is not None:
            lanes = lanes[np.broadcast_to(pointer.labels.reshape(-1), addresses.shape)[lanes] == 0]
        pointee = form.pointer.type.pointee
        size = max(1, dtype_of(pointee).itemsize)
        at = addresses[lanes]
        fine = self.memory.reachable(at, size, pointer.origin, form.writes)
        shape = form.shape_in(op)
        if not fine.all():
            self._outside(form, addresses, lanes[~fine], size, shape)
            lanes, at = lanes[fine], at[fine]
        for value in form.stored:
            self._use(value, lanes, "is stored")
        if isinstance(op, m.AtomicRMW | m.AtomicCAS):
            self.watch.shadow.order.atomic(op, at, self.serial)
        place = self.watch.place(self._location)
        seen = self.watch.shadow.touch(
            at, size, place, self.serial, reads=form.reads, writes=form.writes, atomic=form.atomic
        )
        for conflict in seen.conflicts:
            self._race(form, conflict, addresses, lanes, size, shape)
        self._never_written(form, lanes, seen.undefined, len(addresses), shape)
        return lanes

    def _where(self, form: AccessForm, lanes: Array) -> None:
        """Report operands that decide which elements are accessed, and that nobody may rely on."""
        tile = form.pointer.type.rank > 0
        self._use(form.pointer, lanes if tile else None, f"is part of the address that this {form.verb}")
        for scalar in form.scalars:
            self._use(scalar, None, f"is part of the address that this {form.verb}")
        if form.mask is not None:
            self._use(form.mask, None, f"decides what this {form.verb}")

    def _use(self, value: Value, lanes: Array | None, role: str) -> None:
        """Report the elements of ``value`` (those at ``lanes``, else all) that have a label."""
        labels = self.held[value].labels
        if labels is None:
            return
        flat = labels.reshape(-1)
        chosen = np.arange(len(flat)) if lanes is None else lanes
        for label in np.unique(flat[chosen]):
            if label:
                hit = chosen[flat[chosen] == label]
                reason = self.watch.reasons[label - 1]
                what = "was masked off" if reason.kind is FindingKind.MASKED_OFF else "nobody has written"
                message = f"what a load of {reason.array or 'memory'} got where it {what} {role}"
                if reason.kind is FindingKind.NEVER_WRITTEN:
                    message = f"an element of {reason.array or 'memory'} that nobody has written {role}"
                index = _index(int(hit[0]), value.type.shape)
                self._found(reason.kind, message, reason.array, index, len(hit), reason.place)

    def _outside(self, form: AccessForm, addresses: Array, lanes: Array, size: int, shape: tuple[int, ...]) -> None:
        origin = self.held[form.pointer].origin
        address = int(addresses[lanes[0]])
        kind = FindingKind.WRITE_OUTSIDE if form.writes else FindingKind.READ_OUTSIDE
        what = origin.describe(address, size) if origin else f"address {address:#x}, which is in no array"
        name = origin.name if origin else ""
        self._found(kind, f"{form.verb} {what}", name, _index(int(lanes[0]), shape), len(lanes))

    def _race(
        self,
        form: AccessForm,
        conflict: RaceWith,
        addresses: Array,
        lanes: Array,
        size: int,
        shape: tuple[int, ...],
    ) -> None:
        lane = int(lanes[conflict.lanes[0]])
        address = int(addresses[lane])
        buffer = self.held[form.pointer].origin or next(
            (b for b in self.memory.buffers if b.start <= address < b.start + b.size), None
        )
        what = buffer.describe(address, size) if buffer else f"address {address:#x}"
        who = self.watch.program_id(conflict.program)
        message = f"{form.verb} {what}, which program {who} {conflict.verb} as well"
        name, index = buffer.name if buffer else "", _index(lane, shape)
        self._found(FindingKind.RACE, message, name, index, len(conflict.lanes), conflict.place)

    def _never_written(
        self, form: AccessForm, lanes: Array, undefined: Array, size: int, shape: tuple[int, ...]
    ) -> None:
        """Label what was read, or report it where reading and using are one."""
        self._loaded = None
        if not undefined.any():
            return
        origin = self.held[form.pointer].origin
        name = origin.name if origin else ""
        if form.atomic:
            first = _index(int(lanes[undefined][0]), shape)
            message = f"updates an element of {name or 'memory'} that nobody has written"
            self._found(FindingKind.NEVER_WRITTEN, message, name, first, int(undefined.sum()))
            return
        reason = Unreliable(FindingKind.NEVER_WRITTEN, self.watch.place(self._location), name)
        self._loaded = np.zeros(size, np.int32)
        self._loaded[lanes[undefined]] = self.watch.label(reason)

    def _labels_of_load(self, op: m.Load | m.AtomicRMW | blocks.BlockLoad) -> Array | None:
        """Labels of what a load or atomic has given: masked-off elements without ``other`` have one. Boxes have values
        outside their arrays."""
        shape = op.results[0].type.shape
        loaded, self._loaded = self._loaded, None
        labels = np.zeros(shape, np.int32) if loaded is None else loaded.reshape(shape)
        if not isinstance(op, blocks.BlockLoad) and op.mask is not None:
            off = ~self.get(op.mask)
            if isinstance(op, m.Load) and op.other is not None:
                labels = np.where(off, labels_of(self, op.other), labels)
            elif off.any():
                origin = self.held[op.pointer].origin
                place = self.watch.place(self._location)
                reason = Unreliable(FindingKind.MASKED_OFF, place, origin.name if origin else "")
                labels = np.where(off, np.int32(self.watch.label(reason)), labels)
        return labels

    # ---- reports -----------------------------------------------------------------------------------------------

    def _found(
        self,
        kind: FindingKind,
        message: str,
        array: str,
        index: tuple[int, ...],
        count: int,
        other: SourcePlace | None = None,
    ) -> None:
        place = self.watch.place(self._location)
        where = f"program {self.program_id}" + (f", tile index {index}" if index else "")
        finding = Finding(kind, self.watch.kernel, place, array, self.program_id, index, f"{where}: {message}", other)
        self.watch.report.add(finding, count)


def _index(lane: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(lane, shape)) if shape else ()
