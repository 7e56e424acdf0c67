"""Many lookups at once: what one of them reads is not read by all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from deuteron.migrations import upgrade
from deuteron.server import ServiceStore, groups
from deuteron.server.configs import put_record
from deuteron.server.groups import read
from deuteron.server.lookups import TRUST_SECONDS, Lookups, Question
from deuteron.server.metrics import Metrics
from deuteron.server.predictors import FILE_NAME, Predictors
from deuteron.tuner import Answer, ConfigRecord, DeviceFingerprint

HASH = "a" * 64
DEVICE = DeviceFingerprint("cpu", "cpu")
NEAR = Question(HASH, DEVICE.key, {"M": 96, "N": 64}, "f32")

MakeRecord = Callable[..., ConfigRecord]


class Store(ServiceStore):
    """Counts transactions, which take a moment, and may be out of reach."""

    reads = 0
    away = False

    def read(self):  # type: ignore[no-untyped-def]
        self.reads += 1
        if self.away:
            raise OperationalError("SELECT", {}, Exception("away"))
        time.sleep(0.02)
        return super().read()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(sqlite_url: str, make_record: MakeRecord) -> Iterator[Store]:
    upgrade(sqlite_url)
    made = Store.open(sqlite_url)
    with made.write() as tx:
        put_record(tx, make_record({"M": 64, "N": 64}, device=DEVICE, block=64), None)
    yield made
    made.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lookups(store: Store, clock: Clock, tmp_path: Path) -> Lookups:
    return Lookups(store, Metrics(), Predictors(tmp_path / FILE_NAME), clock)


def at_once(count: int, act: Callable[[], Answer]) -> list[Answer]:
    """What so many threads get that begin together."""
    start, found = threading.Barrier(count), []

    def run() -> None:
        start.wait()
        found.append(act())

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return found


def test_a_group_is_read_once(lookups: Lookups, monkeypatch: pytest.MonkeyPatch) -> None:
    whole: list[object] = []

    def slowly(*given: object) -> object:
        if given[2] is None:
            whole.append(given)
            time.sleep(0.05)
        return read(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(groups, "read", slowly)
    answers = at_once(8, lambda: lookups.answer(NEAR))
    assert [answer.match for answer in answers] == ["nearest_shape"] * 8
    assert len(whole) == 1


@pytest.mark.parametrize("why", ["time", "write"])
def test_versions_are_read_once_for_all_that_wait(
    lookups: Lookups, store: Store, clock: Clock, make_record: MakeRecord, why: str
) -> None:
    lookups.answer(NEAR)
    if why == "time":
        clock.now += TRUST_SECONDS
    else:
        with store.write() as tx:
            put_record(tx, make_record({"M": 1, "N": 1}, device=DeviceFingerprint("cpu", "other"), block=1), None)
        lookups.answer(Question(HASH, DEVICE.key, {"M": 64, "N": 64}, "f32"))  # reads what it is about, too
        clock.now += TRUST_SECONDS
    store.reads = 0
    answers = at_once(8, lambda: lookups.answer(NEAR))
    assert [answer.match for answer in answers] == ["nearest_shape"] * 8
    assert store.reads == 1


def test_versions_are_renewed_while_lookups_come(
    lookups: Lookups,
    store: Store,
    clock: Clock,
    make_record: MakeRecord,
    sqlite_url: str,
    wait_until: Callable[..., None],
) -> None:
    lookups.answer(NEAR)
    elsewhere = ServiceStore.open(sqlite_url)
    with elsewhere.write() as tx:
        put_record(tx, make_record({"M": 96, "N": 64}, device=DEVICE, block=96), None)
    elsewhere.close()
    store.reads = 0
    answer = lookups.recall(NEAR)
    assert answer is not None and answer.match == "nearest_shape" and store.reads == 0, "not yet"
    clock.now += TRUST_SECONDS / 2
    for _ in range(5):
        lookups.recall(NEAR)
    wait_until(lambda: lookups.recall(NEAR) is None, 5)
    assert store.reads == 1
    for _ in range(10):  # until all of the group is read
        assert lookups.answer(NEAR).match == "exact"
    # Renewed once, they hold for the whole time again.
    clock.now += TRUST_SECONDS * 0.9
    assert lookups.recall(NEAR) is not None


def test_a_store_that_is_away_is_noticed_when_nothing_holds(lookups: Lookups, store: Store, clock: Clock) -> None:
    lookups.answer(NEAR)
    store.away = True
    clock.now += TRUST_SECONDS / 2
    assert lookups.recall(NEAR) is not None
    time.sleep(0.1)  # the renewal fails, and nobody hears of it
    assert lookups.answer(NEAR).match == "nearest_shape"
    clock.now += TRUST_SECONDS / 2
    with pytest.raises(OperationalError):
        lookups.answer(NEAR)
    store.away = False
    assert lookups.answer(NEAR).match == "nearest_shape"
