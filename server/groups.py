"""What lookups remember: the records of a (kernel, device, dtype), each group with the version at which it was read.

A group of up to :data:`MOST_WHOLE` records is remembered decoded. Of a larger one only the keys of its shapes are: an
answer rests on the records of the wanted shape, or else on the nearest of each device and toolchain, so these few are
read and decoded, and remembered by the shape that was asked for. Where one of them may not be used for that shape, the
next ones are read, as many as a lookup looks into.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from deuteron.tuner import BUILTINS, ConfigRecord, RecordIndex, builtin_workload, shape_key
from deuteron.tuner.codec import decode
from deuteron.tuner.job import parse_shape
from deuteron.tuner.records.lookup import NEAREST_TRIED
from deuteron.tuner.records.nearest import ShapeSet

from .predictors import Predictors
from .resolving import builtin_kernel_hash
from .store import Transaction

#: Records of a group that are decoded together, which takes some 0.1 ms each.
MOST_WHOLE = 1000
# Bounds memory: a record takes about 3 KB, so this is 450 MB at the very most. One group too many costs dearly: some
# lookup in a hundred then reads a whole group anew.
_MOST_RECORDS = 150_000
# What an index takes beside its records, in records: anybody can ask for any number of groups that have none.
_INDEX_ITSELF = 2
# Groups that are known to be large.
_MOST_LARGE = 10_000
# The key of a shape and its sizes take some 120 bytes.
_MOST_KEYS = 1_000_000
# Shapes of a kernel that are looked at to learn its dims, which are the same in all but strange cases.
_SHAPES_READ = 20

_Key = TypeVar("_Key", bound=Hashable)
_Kept = TypeVar("_Kept")

#: A kernel's hash, the keys of the devices that are meant, and a dtype.
Group = tuple[str, tuple[str, ...], str]


@dataclass(slots=True)
class GroupShapes:
    """The shapes of a group by device and toolchain, without the records."""

    tables: dict[tuple[str, str], ShapeSet] = field(default_factory=dict)

    def add(self, device_key: str, toolchain_key: str, shape: str) -> None:
        """Add the shape of a record by its key."""
        sizes = parse_shape(shape) if shape else {}
        self.tables.setdefault((device_key, toolchain_key), ShapeSet()).add(shape, sizes)

    def __len__(self) -> int:
        return sum(map(len, self.tables.values()))

    def deciding(self, shape: Mapping[str, int], most: int) -> list[str]:
        """The keys of the shapes whose records give the answer that all of them would give to a shape that is not among
        them: of each device and toolchain the ``most`` nearest, or any if none has these dims, which tells that there
        are records."""
        found: set[str | None] = set()
        for table in self.tables.values():
            near = list(itertools.islice(table.by_distance(shape), most))
            found.update(near or [table.some()])
        return sorted(key for key in found if key is not None)


class _Shelf(Generic[_Key, _Kept]):
    """What was used last, up to a number of parts; what has more than that is kept alone."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[_Key, tuple[tuple[int, ...], _Kept, int]] = OrderedDict()
        self._size = 0

    def get(self, key: _Key, versions: tuple[int, ...]) -> _Kept | None:
        if key not in self._kept:
            return None
        seen, what, _ = self._kept[key]
        if seen != versions:
            return None
        self._kept.move_to_end(key)
        return what

    def put(self, key: _Key, versions: tuple[int, ...], what: _Kept, size: int) -> None:
        self._drop(key)
        self._kept[key] = versions, what, size
        self._size += size
        while self._size > self._most and len(self._kept) > 1:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: _Key) -> None:
        if key in self._kept:
            self._size -= self._kept.pop(key)[2]


class Groups:
    """Records of groups, read when they are first asked for. Safe to share between threads."""

    def __init__(self, predictors: Predictors) -> None:
        self._predictors = predictors
        self._lock = threading.Lock()
        self._arranging = threading.Lock()
        self._indexes: _Shelf[tuple[Group, str | None], RecordIndex] = _Shelf(_MOST_RECORDS)
        self._shapes: _Shelf[Group, GroupShapes] = _Shelf(_MOST_KEYS)
        self._large: OrderedDict[Group, None] = OrderedDict()

    def remembered(self, group: Group, versions: tuple[int, ...], shape: Mapping[str, int]) -> RecordIndex | None:
        """An index that answers for this shape as all records of the group would, if it needs no read of the store."""
        with self._lock:
            whole = self._indexes.get((group, None), versions)
            return whole if whole is not None else self._indexes.get((group, shape_key(shape)), versions)

    def load(self, tx: Transaction, group: Group, versions: tuple[int, ...], shape: Mapping[str, int]) -> RecordIndex:
        """As :meth:`remembered`, read from the store."""
        if not self._is_large(tx, group):
            return self.whole(tx, group, versions)
        wanted = shape_key(shape)
        index = self._arrange(tx, group, [wanted])
        if not len(index):
            shapes = self._shapes_of(tx, group, versions)
            if not len(shapes):  # all are withdrawn
                return self.whole(tx, group, versions)
            index = self._arrange(tx, group, shapes.deciding(shape, 1))
            if any(record.shape.keys() == shape.keys() and record.objection(shape) for record in index):
                index = self._arrange(tx, group, shapes.deciding(shape, NEAREST_TRIED))
        with self._lock:
            self._indexes.put((group, wanted), versions, index, len(index) + _INDEX_ITSELF)
        return index

    def is_known_large(self, group: Group) -> bool:
        """Whether the group was seen to have more than :data:`MOST_WHOLE` records."""
        return group in self._large

    def _is_large(self, tx: Transaction, group: Group) -> bool:
        # One that has shrunk is answered as rightly as a large one.
        if not self.is_known_large(group) and tx.configs.count_of(*group) > MOST_WHOLE:
            with self._lock:
                self._large[group] = None
                while len(self._large) > _MOST_LARGE:
                    self._large.popitem(last=False)
        return self.is_known_large(group)

    def _shapes_of(self, tx: Transaction, group: Group, versions: tuple[int, ...]) -> GroupShapes:
        with self._lock:
            shapes = self._shapes.get(group, versions)
        if shapes is None:
            shapes = GroupShapes()
            for place in tx.configs.keys_of(*group):
                shapes.add(*place)
            with self._lock:
                self._shapes.put(group, versions, shapes, len(shapes))
        return shapes

    def whole(self, tx: Transaction, group: Group, versions: tuple[int, ...]) -> RecordIndex:
        """All records and predictors of a group."""
        # One at a time: whoever asks for the same meanwhile finds it made.
        with self._arranging:
            with self._lock:
                kept = self._indexes.get((group, None), versions)
            # The version of an empty group does not tell when the kernel is tuned elsewhere, which answers name.
            if kept is not None and len(kept):
                return kept
            index = self._arrange(tx, group, None)
            if not len(index):
                _tell_what_is_known(tx, index, group[0])
            with self._lock:
                self._indexes.put((group, None), versions, index, len(index) + _INDEX_ITSELF)
            return index

    def _arrange(self, tx: Transaction, group: Group, shapes: list[str] | None) -> RecordIndex:
        index = read(tx, group, shapes)
        for predictor in self._predictors.of(group[0]):
            index.add_predictor(predictor)
        return index


def read(tx: Transaction, group: Group, shapes: Collection[str] | None) -> RecordIndex:
    """The stored records of a group; of these shapes only, if they are given."""
    return RecordIndex(
        decode(text, ConfigRecord, ConfigRecord.noun) for text in tx.configs.candidates(*group, shape_keys=shapes)
    )


def _tell_what_is_known(tx: Transaction, index: RecordIndex, kernel_hash: str) -> None:
    """For a group without records: where else the kernel was tuned, and over which dims it is."""
    for device_key, dtype in tx.configs.places(kernel_hash):
        index.add_place(kernel_hash, device_key, dtype)
    for name in BUILTINS:
        if builtin_kernel_hash(name) == kernel_hash:
            index.add_dims(kernel_hash, name, builtin_workload(name).dims)
    for kernel_name, shape in tx.configs.shapes(kernel_hash, limit=_SHAPES_READ):
        index.add_dims(kernel_hash, kernel_name, parse_shape(shape))
