"""Metrics that a GPU has to tell: tensors in its memory, and whatever is given while a graph is captured.

The numbers of a tensor are not there yet when it is given as a metric. A small kernel behind those that compute them
tells them (:mod:`.sources.metric_kernels`); they are added to the profile when they have arrived. What is given while a
stream is captured counts whenever the graph is launched, where it is launched, below ``<captured_at>``: a tensor's
kernel is captured, too, and tells what it finds at each launch. Records of that kernel say which launch it was; CUDA
runs launches of one graph one after the other, so the n-th record and the n-th value are of the same.
"""

from __future__ import annotations

import itertools
import warnings
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from .correlation import Correlations
from .errors import MetricError
from .metrics import Awaited, is_of_floats, normalise, parse_name, times
from .place import Place
from .session import ProfileTarget

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: The frame between the launch of a graph and the places where its kernels were captured.
CAPTURED_AT = "<captured_at>"
#: The frame of a kernel that tells a metric.
METRIC = "<metric>"


class MetricSource(Protocol):
    """What asks a GPU for metrics (:class:`deuteron.profiler.sources.metric_kernels.MetricKernels`)."""

    def is_capturing(self, stream: int | None = None) -> bool:
        """Whether launches to a stream, None for the current one, are captured in a graph."""
        ...

    def write(self, number: int, tensor: object, as_float: bool, stream: int | None = None) -> None:
        """Have a tensor's elements told under a number. Raises MetricError for one that is too large."""
        ...

    def mark(self, stream: int | None = None) -> None:
        """Launch a kernel that tells nothing."""
        ...


@dataclass(frozen=True, slots=True)
class TensorMetric:
    """A metric whose value a kernel tells. ``as_float``: in words that are float64, not int64."""

    name: str
    as_float: bool
    owners: Sequence[ProfileTarget]
    awaited: Awaited = field(default_factory=Awaited)

    def value(self, words: NDArray[np.int64]) -> object:
        """The metric from its words: a number, or a list if there are several."""
        numbers = words.view("<f8").tolist() if self.as_float else words.tolist()
        return numbers[0] if len(numbers) == 1 else numbers


@dataclass(frozen=True, slots=True)
class Captured:
    """What was given where a node of a graph was captured: numbers that are known, or a tensor, told under
    ``told_as``."""

    owners: Sequence[ProfileTarget]
    constants: Mapping[str, object] = field(default_factory=dict)
    tensor: TensorMetric | None = None
    told_as: int = 0


class DeviceMetrics:
    """Asks for metrics, and adds them where they belong when they have arrived."""

    #: Graphs of a session that has ended still tell theirs: numbers are not used twice in a process.
    _numbers = itertools.count(1)

    def __init__(self, source: MetricSource, correlations: Correlations) -> None:
        self.source = source
        self._correlations = correlations
        # Metrics, and the flush before which they were asked for.
        self._awaited: dict[int, tuple[TensorMetric, int]] = {}
        # By the number of the place where they were captured; and what their tensors are told as.
        self.captured: dict[int, Captured] = {}
        self._told_as: set[int] = set()
        # By what they are told as: launches whose value has not arrived; values whose launch is not known yet, and the
        # flush in or before which they came.
        self._ran: defaultdict[int, deque[_Launch]] = defaultdict(deque)
        self._told: defaultdict[int, deque[tuple[NDArray[np.int64], int]]] = defaultdict(deque)
        self._flushes = 0
        self._warned = False

    def ask(
        self,
        tensors: Mapping[str, object],
        owners: Sequence[ProfileTarget],
        around: Place,
        mark: Callable[[int], None],
        *,
        stream: int | None,
        captured: bool,
    ) -> dict[str, Awaited]:
        """Have tensors told that are metrics of ``owners``, by kernels at the place ``around``, for whose launches
        ``mark`` is called with their number; returns what will hold the values, if they are not ``captured``.

        Raises MetricError for a name that cannot be one, and for a tensor that is too large.
        """
        asked: dict[str, Awaited] = {}
        for name, tensor in tensors.items():
            told_as, as_float = next(self._numbers), is_of_floats(parse_name(name).stored, tensor)
            made = TensorMetric(name, as_float, owners)
            targets = _below(around)
            if captured:
                number = self._correlations.number_of_launch(targets, {})
                self.captured[number] = Captured(owners, tensor=made, told_as=told_as)
                self._told_as.add(told_as)
            else:
                number = self._correlations.number_of(targets)
                self._awaited[told_as] = made, self._flushes
                asked[name] = made.awaited
            mark(number)
            try:
                self.source.write(told_as, tensor, as_float, stream)
            except MetricError:
                self._awaited.pop(told_as, None)
                raise
        return asked

    def capture(
        self,
        metrics: Mapping[str, object],
        owners: Sequence[ProfileTarget],
        around: Place,
        mark: Callable[[int], None],
        stream: int | None,
    ) -> None:
        """Have ``metrics``, which are known, count for ``owners`` whenever the graph that is captured is launched.

        Raises MetricError for a name or a value that cannot be one.
        """
        number = self._correlations.number_of_launch(_below(around), {})
        self.captured[number] = Captured(owners, _checked(metrics))
        mark(number)
        self.source.mark(stream)

    def number_of_captured(
        self, targets: Sequence[ProfileTarget], owners: Sequence[ProfileTarget], metrics: Mapping[str, object]
    ) -> int:
        """The number of a kernel that is captured at ``targets``, and of which ``metrics`` are known. Raises
        MetricError."""
        number = self._correlations.number_of_launch(targets, {})
        self.captured[number] = Captured(owners, _checked(metrics))
        return number

    def arrived(self, told: Iterable[tuple[int, NDArray[np.int64]]]) -> None:
        """Take what kernels told: numbers, and the words of each."""
        for number, words in told:
            tensor, _ = self._awaited.pop(number, (None, 0))
            if tensor is None:
                if number in self._told_as:  # others are of graphs that an earlier session captured
                    self._told[number].append((words, self._flushes))
                continue
            tensor.awaited.value = value = tensor.value(words)
            for owner in tensor.owners:
                self._add(owner, (), {tensor.name: value})

    def ran(self, captured: Captured, targets: Sequence[ProfileTarget]) -> Awaited:
        """A kernel that tells a captured tensor ran in a launch of its graph at ``targets``; calls come in the order in
        which it ran. Returns what will hold the value of this launch."""
        launch = _Launch(captured, targets)
        self._ran[captured.told_as].append(launch)
        return launch.awaited

    def add_constants(self, captured: Captured, target: ProfileTarget, count: int) -> None:
        """Add what is known of a node that ran ``count`` times in graphs launched at ``target``."""
        self._add_captured(captured, target, {name: times(name, v, count) for name, v in captured.constants.items()})

    def join(self) -> None:
        """Add the values whose launches are known by now."""
        for number in [number for number in self._ran if number in self._told]:
            ran, told = self._ran[number], self._told[number]
            while ran and told:
                launch, (words, _) = ran.popleft(), told.popleft()
                tensor = launch.captured.tensor
                if tensor is None:
                    continue
                launch.awaited.value = value = tensor.value(words)
                for target in launch.targets:
                    self._add_captured(launch.captured, target, {tensor.name: value})

    def begin_flush(self) -> None:
        """All launches so far are waited for, and their records and values taken; others may go on meanwhile."""
        self._flushes += 1

    def settle(self, lost: bool) -> None:
        """After a flush: what was asked for, told or run before it began, and has no counterpart now, never gets one.
        ``lost``: values were overwritten."""
        for told in self._told.values():
            while told and told[0][1] < self._flushes:
                told.popleft()
        overdue = [number for number, (_, asked) in list(self._awaited.items()) if asked < self._flushes]
        missing = sum(len(ran) for ran in self._ran.values()) + len(overdue)
        self._ran.clear()  # a value is there before its record
        for number in overdue:
            self._awaited.pop(number, None)
        if lost or missing:
            why = (
                "their buffer was full: set DEUTERON_PROFILE_METRIC_BUFFER_SIZE"
                if lost
                else "their kernels did not run"
            )
            warnings.warn(f"{missing} metrics of tensors are missing: {why}", RuntimeWarning, stacklevel=2)

    def _add_captured(self, captured: Captured, target: ProfileTarget, metrics: Mapping[str, object]) -> None:
        for owner in captured.owners:
            if owner.phase.session == target.phase.session:
                self._add(target, (CAPTURED_AT, *owner.path), metrics)

    def _add(self, target: ProfileTarget, below: tuple[str, ...], metrics: Mapping[str, object]) -> None:
        profile = target.phase.profile
        try:
            profile.add_to(profile.descend(target.node, below), metrics)
        except MetricError as error:  # whoever gave the tensor has long gone on
            if not self._warned:
                warnings.warn(f"a metric of a tensor is not recorded: {error}", RuntimeWarning, stacklevel=2)
            self._warned = True


@dataclass(frozen=True, slots=True)
class _Launch:
    captured: Captured
    targets: Sequence[ProfileTarget]
    awaited: Awaited = field(default_factory=Awaited)


def _below(around: Place) -> list[ProfileTarget]:
    return [ProfileTarget(target.phase, (*target.path, METRIC), is_launch=True) for target in around.targets]


def _checked(metrics: Mapping[str, object]) -> dict[str, object]:
    return {name: normalise(parse_name(name).stored, value) for name, value in metrics.items()}
