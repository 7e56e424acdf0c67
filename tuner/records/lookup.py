"""Finding the configuration for a launch among stored records, and saying why it was chosen."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from ..codec import Document, Finite, Scalar, canonical_json
from ..errors import RecordNotFound, ShapeMismatch
from ..job import shape_key
from .fingerprint import DeviceFingerprint
from .nearest import ShapeSet, shape_distance
from .precedence import age
from .predictor import Predictor
from .record import ConfigRecord
from .toolchain import Difference, differences

Match: TypeAlias = Literal["exact", "predicted", "nearest_shape", "other_toolchain", "default"]

#: Farthest :func:`~.nearest.shape_distance` at which a record answers for another shape: one size 8 times larger or
#: smaller, or two sizes 4.3 times each. A choice, not a measurement: what was tuned farther away is no better founded
#: than the default.
FARTHEST = 9.0
#: Of the records of one toolchain, nearest first, those that are asked whether they may be used for a shape. Where so
#: many may not be, one that is farther away hardly may, and lookups of services look into no more than these.
NEAREST_TRIED = 64

# Devices that an answer names before it only counts them.
_PLACES_SHOWN = 3


class Answer(Document, frozen=True):
    """The configuration to use and why. With the match ``default`` there is no record and ``config`` is empty: the
    kernel's own defaults apply.

    ``toolchain_differences``: where the toolchain of the record, or of the times that a prediction rests on, is not the
    one of the launch; empty where it is, None where there was nothing to compare. ``expected_loss``: of a prediction,
    which has no record: how much slower than the best measured such predictions were in the geometric mean, 0.03 for
    3 %. ``upstream``: of a service's answer for which its upstream was needed, whether that was ``reached``,
    ``unreachable`` or ``refused``; else None.
    """

    record: ConfigRecord | None
    config: Mapping[str, Scalar]
    match: Match
    reason: str
    toolchain_differences: tuple[Difference, ...] | None = None
    expected_loss: Finite | None = None
    upstream: str | None = None


class _Table:
    """Records of one kernel, device, dtype and toolchain by shape; of two for one shape the newer."""

    def __init__(self) -> None:
        self.by_key: dict[str, ConfigRecord] = {}
        self._shapes = ShapeSet()

    def add(self, record: ConfigRecord) -> None:
        old = self.by_key.get(record.shape_key)
        if old is None:
            self._shapes.add(record.shape_key, record.shape)
        if old is None or age(old) <= age(record):
            self.by_key[record.shape_key] = record

    def nearest(self, shape: Mapping[str, int]) -> Iterator[ConfigRecord]:
        """The :data:`NEAREST_TRIED` records of the nearest shapes with the same dims, in order."""
        return (self.by_key[key] for key in itertools.islice(self._shapes.by_distance(shape), NEAREST_TRIED))


class RecordIndex:
    """Records arranged for lookup: among 100,000 an answer takes microseconds. Iterates in order of insertion."""

    def __init__(self, records: Iterable[ConfigRecord] = (), predictors: Iterable[Predictor] = ()) -> None:
        self._records: list[ConfigRecord] = []
        self._predictors: dict[tuple[str, str], list[tuple[str, Predictor]]] = {}
        self._devices: dict[tuple[str, str], dict[str, DeviceFingerprint]] = {}
        self._tables: dict[tuple[str, str, str], dict[str, _Table]] = {}
        self._by_hash: dict[str, ConfigRecord | Predictor] = {}
        self._dims: dict[str, dict[frozenset[str], None]] = {}
        self._names: dict[str, str] = {}
        self._places: dict[str, dict[str, set[str]]] = {}
        for record in records:
            self.add(record)
        for predictor in predictors:
            self.add_predictor(predictor)

    def add(self, record: ConfigRecord) -> None:
        """Add a record; of two for one kernel, device, dtype, toolchain and shape the newer answers."""
        self._records.append(record)
        kernel_hash, device_key, dtype, _, toolchain_key = record.key
        self._devices.setdefault((kernel_hash, dtype), {})[device_key] = record.device
        tables = self._tables.setdefault((kernel_hash, device_key, dtype), {})
        tables.setdefault(toolchain_key, _Table()).add(record)
        self._by_hash.setdefault(kernel_hash, record)
        self.add_dims(kernel_hash, record.kernel_name, record.shape)
        self.add_place(kernel_hash, device_key, dtype)

    def add_predictor(self, predictor: Predictor) -> None:
        """Add a predictor; it takes the place of one for the same kernel, device, dtype and toolchain."""
        place, key = (predictor.kernel_hash, predictor.dtype), predictor.device.key
        others = [item for item in self._predictors.get(place, ()) if item[1].key != predictor.key]
        known = [*others, (key, predictor)]
        self._predictors[place] = sorted(known, key=lambda item: age(item[1]), reverse=True)
        self._by_hash.setdefault(predictor.kernel_hash, predictor)
        self.add_dims(predictor.kernel_hash, predictor.kernel_name, predictor.ranking.dims)
        self.add_place(predictor.kernel_hash, predictor.device.key, predictor.dtype)

    def every_predictor(self) -> list[Predictor]:
        """All predictors."""
        return [predictor for known in self._predictors.values() for _, predictor in known]

    def copy(self) -> RecordIndex:
        """Another index with all that this one has and knows."""
        made = RecordIndex(self._records, self.every_predictor())
        for kernel_hash, known in self._dims.items():
            for dims in known:
                made.add_dims(kernel_hash, self._names[kernel_hash], dims)
        for kernel_hash, places in self._places.items():
            for device_key, dtypes in places.items():
                for dtype in dtypes:
                    made.add_place(kernel_hash, device_key, dtype)
        return made

    def predictors(self, kernel_hash: str, device: DeviceFingerprint, dtype: str) -> list[Predictor]:
        """Those for the devices that are this one, the same key first, then the newest."""
        known = self._predictors.get((kernel_hash, dtype), [])
        key = device.key if known else ""
        same = [predictor for other, predictor in known if other == key]
        return same + [p for other, p in known if other != key and p.device.matches(device)]

    def add_place(self, kernel_hash: str, device_key: str, dtype: str) -> None:
        """Make known that the kernel was tuned for this device and dtype, though the records are not in this index."""
        self._places.setdefault(kernel_hash, {}).setdefault(device_key, set()).add(dtype)

    def add_dims(self, kernel_hash: str, kernel_name: str, dims: Iterable[str]) -> None:
        """Make known over which dims the kernel is tuned, whether or not its records are in this index."""
        self._dims.setdefault(kernel_hash, {})[frozenset(dims)] = None
        self._names[kernel_hash] = kernel_name

    def why_nothing(self, kernel_hash: str, device_key: str, dtype: str) -> str:
        """Why there is no record for a device and dtype, and for which the kernel was tuned, in words."""
        places = self._places.get(kernel_hash)
        if not places:
            return f"no record of the kernel {kernel_hash[:12]} (its source may have changed since it was tuned)"
        shown = [f"{key} ({', '.join(sorted(dtypes))})" for key, dtypes in sorted(places.items())]
        more = f" and {len(shown) - _PLACES_SHOWN} more" if len(shown) > _PLACES_SHOWN else ""
        return f"nothing for {dtype} on {device_key}: the kernel was tuned for {', '.join(shown[:_PLACES_SHOWN])}{more}"

    def check_dims(self, kernel_hash: str, shape: Mapping[str, int]) -> None:
        """Raise :class:`~..errors.ShapeMismatch` if the kernel's dims are known and not those of ``shape``."""
        known = self._dims.get(kernel_hash)
        if not known or frozenset(shape) in known:
            return
        dims = next(iter(known))
        missing, unknown = sorted(dims - shape.keys()), sorted(shape.keys() - dims)
        wrong = f"lacks {missing[0]!r}" if missing else f"has the unknown dim {unknown[0]!r}"
        raise ShapeMismatch(
            f"the shape {shape_key(shape) or '(empty)'} {wrong}",
            hint=f"dims of {self._names[kernel_hash]}: {', '.join(sorted(dims))}",
        )

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[ConfigRecord]:
        return iter(self._records)

    def of_kernel(self, kernel_hash: str) -> ConfigRecord | Predictor | None:
        """Some record or predictor of the kernel: all of one kernel agree on where the shape is found among its
        arguments."""
        return self._by_hash.get(kernel_hash)

    def tables(self, kernel_hash: str, device: DeviceFingerprint, dtype: str) -> list[tuple[str, _Table]]:
        """(toolchain key, records) for the devices that are this one: the same key first, then those that match in
        all that is known of both."""
        known = self._devices.get((kernel_hash, dtype), {})
        keys = [device.key] if device.key in known else []
        keys += [k for k, other in known.items() if k != device.key and other.matches(device)]
        return [item for key in keys for item in sorted(self._tables[kernel_hash, key, dtype].items())]


def lookup(
    records: Iterable[ConfigRecord] | RecordIndex,
    kernel_hash: str,
    device: DeviceFingerprint,
    shape: Mapping[str, int],
    dtype: str,
    *,
    strict: bool = False,
    toolchain: Mapping[str, str] | None = None,
) -> Answer:
    """The configuration for a launch: for exactly this shape; else what is predicted for it, where a predictor of the
    kernel did better than the nearest shape; else for the nearest shape whose configuration may be used for this one
    (:meth:`ConfigRecord.objection`), if it is no farther than :data:`FARTHEST`; else the default. Of two records for
    one shape, or for shapes equally near, the one of this toolchain counts, but a near shape of another toolchain is a
    better guess than a far one of this. Kernel, device and dtype always have to fit.

    ``toolchain``: what the launch will be compiled with (:func:`~.toolchain.current_toolchain`); None compares none.

    Raises:
        ShapeMismatch: the kernel is tuned over other dims than those of ``shape``.
        RecordNotFound: ``strict``, and there is no exact match.
    """
    index = records if isinstance(records, RecordIndex) else RecordIndex(records)
    index.check_dims(kernel_hash, shape)
    tables = index.tables(kernel_hash, device, dtype)
    chain = None if toolchain is None else canonical_json(dict(toolchain))
    asked = _Asked(shape, shape_key(shape), toolchain, chain)
    fitting = [table for key, table in tables if asked.is_of(key)]
    others = [table for key, table in tables if not asked.is_of(key)]
    exact = _exact(fitting, asked.wanted)
    if exact is not None:
        return _answer(exact, asked)
    stale = _exact(others, asked.wanted)
    if strict:
        found = "only other shapes were tuned" if tables else index.why_nothing(kernel_hash, device.key, dtype)
        why = found if stale is None else _answer(stale, asked).reason
        raise RecordNotFound(
            f"no configuration for {asked.wanted} {dtype} on {device.key}: {why}",
            hint="tune this shape, or look up without strict",
        )
    predictors = [] if stale else index.predictors(kernel_hash, device, dtype)
    guess = _guess(asked, fitting, others, predictors, stale)
    return guess or Answer(None, {}, "default", _why_nothing(index, kernel_hash, device, dtype, asked, predictors))


class _Asked(NamedTuple):
    """The shape and the toolchain of a launch, and their keys."""

    shape: Mapping[str, int]
    wanted: str
    toolchain: Mapping[str, str] | None
    chain: str | None

    def is_of(self, toolchain_key: str) -> bool:
        """Whether this is the launch's toolchain; any is where none was given."""
        return self.chain in (None, toolchain_key)


def _guess(
    asked: _Asked,
    fitting: list[_Table],
    others: list[_Table],
    predictors: list[Predictor],
    stale: ConfigRecord | None,
) -> Answer | None:
    """The answer where no record is of this shape and toolchain; None where there is none of any shape. ``stale`` is
    of this shape and another toolchain, as ``others`` are."""
    predicted = _predicted((predictor for predictor in predictors if asked.is_of(predictor.toolchain_key)), asked)
    if predicted is not None:
        return predicted
    looked = [_nearest(group, asked.shape) for group in (fitting, others)]
    near = [record for _, record in looked if record is not None]

    def distance(record: ConfigRecord) -> float:
        return shape_distance(record.shape, asked.shape)

    # What another toolchain taught is no better founded than a near shape that was measured with this one.
    here = any(asked.is_of(record.toolchain_key) and distance(record) <= FARTHEST for record in near)
    unfit = () if here else (predictor for predictor in predictors if not asked.is_of(predictor.toolchain_key))
    predicted = _predicted(unfit, asked)
    if predicted is not None:
        return predicted
    closest = _first((record for record, _ in looked if record is not None), asked.shape)
    best = stale or min(near, key=distance, default=None)
    if best is not None and distance(best) <= FARTHEST:
        return _answer(best, asked, closest)
    return None if closest is None else Answer(None, {}, "default", _why_not(closest, asked))


def _why_not(closest: ConfigRecord, asked: _Asked) -> str:
    """Why no record answers for a shape, of which this one is the closest."""
    if shape_distance(closest.shape, asked.shape) > FARTHEST:
        return (
            f"no record near enough: {asked.wanted} was not tuned on {closest.device.key}, and the nearest shape, "
            f"{closest.shape_key}, is farther than 8 times in one size or 4.3 times in two"
        )
    return (
        f"no record that may be used: {asked.wanted} was not tuned on {closest.device.key}, and the configuration of "
        f"the nearest shape, {closest.shape_key}, is not for it: {closest.objection(asked.shape)}"
    )


def _why_nothing(
    index: RecordIndex,
    kernel_hash: str,
    device: DeviceFingerprint,
    dtype: str,
    asked: _Asked,
    predictors: list[Predictor],
) -> str:
    """Why there is neither a record of any shape nor a prediction."""
    if not predictors:
        return index.why_nothing(kernel_hash, device.key, dtype)
    return f"{asked.wanted} was not tuned on {device.key}, and {predictors[0].objection(asked.shape, FARTHEST)}"


def _predicted(predictors: Iterable[Predictor], asked: _Asked) -> Answer | None:
    """The answer of the first predictor that has one."""
    for predictor in predictors:
        config = predictor.predict(asked.shape, FARTHEST)
        if config is not None:
            return _prediction(predictor, config, asked)
    return None


def _prediction(predictor: Predictor, config: Mapping[str, Scalar], asked: _Asked) -> Answer:
    """What a predictor answers, and what that is worth, in words."""
    unlike: tuple[Difference, ...] | None = None
    if asked.toolchain is not None:
        unlike = () if predictor.toolchain == asked.toolchain else differences(predictor.toolchain, asked.toolchain)
    reason = f"{asked.wanted} {predictor.words}"
    match: Match = "predicted"
    if unlike is None:
        reason += "; toolchains were not compared, since none was given"
    elif unlike:
        match = "other_toolchain"
        reason += f"; trained on times of another toolchain, not verified with this one: {'; '.join(map(str, unlike))}"
    return Answer(None, config, match, reason, unlike, predictor.accuracy.expected_loss)


def _answer(record: ConfigRecord, asked: _Asked, closest: ConfigRecord | None = None) -> Answer:
    """The answer that a record gives: what it is worth and why, in words. ``closest``: the record of the nearest shape,
    which may be passed over."""
    wanted = asked.wanted
    unlike = None if asked.toolchain is None else differences(record.toolchain, asked.toolchain)
    match: Match = "exact" if record.shape_key == wanted else "nearest_shape"
    reason = f"tuned for {wanted} on {record.device.key}"
    if match == "nearest_shape":
        reason = f"{wanted} was not tuned on {record.device.key}; the nearest shape is {record.shape_key}"
        against = None if closest is None or closest is record else closest.objection(asked.shape)
        if closest is not None and against is not None:
            reason = (
                f"{wanted} was not tuned on {record.device.key}; the nearest shape is {closest.shape_key}, but "
                f"{against}; the nearest whose configuration may be used is {record.shape_key}"
            )
    if unlike is None:
        reason += "; toolchains were not compared, since none was given"
    elif unlike:
        match = "other_toolchain"
        reason += f"; measured with another toolchain, not verified with this one: {'; '.join(map(str, unlike))}"
    return Answer(record, record.config, match, reason, unlike)


def _exact(tables: list[_Table], wanted: str) -> ConfigRecord | None:
    """The newest record of exactly this shape."""
    found = [table.by_key[wanted] for table in tables if wanted in table.by_key]
    return max(found, key=age, default=None)


def _nearest(tables: list[_Table], shape: Mapping[str, int]) -> tuple[ConfigRecord | None, ConfigRecord | None]:
    """The record of the nearest shape, and that of the nearest whose configuration may be used for ``shape``."""
    closest, fit = [], []
    for table in tables:
        for place, record in enumerate(table.nearest(shape)):
            if place == 0:
                closest.append(record)
            if record.objection(shape) is None:
                fit.append(record)
                break
    return _first(closest, shape), _first(fit, shape)


def _first(records: Iterable[ConfigRecord], shape: Mapping[str, int]) -> ConfigRecord | None:
    """The nearest; of several for one shape the newest."""
    newest_first = sorted(records, key=age, reverse=True)
    return min(newest_first, key=lambda r: (shape_distance(r.shape, shape), r.shape_key), default=None)
