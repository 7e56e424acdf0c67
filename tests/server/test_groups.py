"""Groups that are too large to be remembered whole answer as if they were."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from deuteron.migrations import upgrade
from deuteron.server import ServiceStore, groups
from deuteron.server.configs import put_record
from deuteron.server.groups import Groups, read
from deuteron.server.lookups import Lookups, Question
from deuteron.server.metrics import Metrics
from deuteron.server.predictors import FILE_NAME, Predictors
from deuteron.tuner import Answer, ConfigRecord, DeviceFingerprint, write_bundle
from deuteron.tuner.errors import RecordNotFound, ShapeMismatch
from deuteron.tuner.records import Predictor
from deuteron.tuner.records.reach import Reach

HASH = "a" * 64
#: The second and third are the same GPU with and without a power cap that is known: they match each other.
DEVICES = [
    DeviceFingerprint("cpu", "cpu"),
    DeviceFingerprint("cuda", "NVIDIA H200", "10de:2335", 132, 141 << 30, (9, 0), None, 700.0),
    DeviceFingerprint("cuda", "NVIDIA H200", "10de:2335", 132, 141 << 30, (9, 0), None, None),
]
CHAINS = ["1", "2", "3"]
SIZES = [1, 2, 3, 64, 96, 100, 127, 128, 500, 4096, 1 << 40]

MakeRecord = Callable[..., ConfigRecord]


@pytest.fixture
def store(sqlite_url: str) -> Iterator[ServiceStore]:
    upgrade(sqlite_url)
    made = ServiceStore.open(sqlite_url)
    yield made
    made.close()


def fill(store: ServiceStore, make_record: MakeRecord, choose: random.Random, count: int) -> None:
    with store.write() as tx:
        for number in range(count):
            shape = a_shape(choose, others=0.1)
            record = make_record(shape, device=choose.choice(DEVICES), block=number + 1)
            chain = {**record.toolchain, "deuteron": choose.choice(CHAINS)}
            reach = (
                Reach(("BLOCK >= N",), sizes={"M": 1 << 62, "N": 1 << 62}, together=True)
                if choose.random() < 0.5
                else None
            )
            put_record(tx, replace(record, toolchain=chain, reach=reach), None)


def a_shape(choose: random.Random, others: float = 0.0, unknown: float = 0.0) -> dict[str, int]:
    """Mostly over M and N; ``others`` of them over K, too, and ``unknown`` over dims that no record has."""
    kind = choose.random()
    names = ("M", "N", "K") if kind < others else ("M", "Z") if kind > 1 - unknown else ("M", "N")
    return {name: choose.choice(SIZES) for name in names}


def said(lookups: Lookups, question: Question, strict: bool) -> object:
    """The answer, or the error with its words."""
    try:
        return lookups.answer(question, strict=strict)
    except (RecordNotFound, ShapeMismatch) as error:
        return type(error), str(error)


@pytest.mark.parametrize("predicted", [False, True])
def test_the_shapes_that_decide_answer_as_all_records_do(
    store: ServiceStore,
    make_record: MakeRecord,
    predictor: Callable[..., Predictor],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    predicted: bool,
) -> None:
    choose = random.Random(int(predicted))
    fill(store, make_record, choose, 250)
    if predicted:
        made = predictor(kernel_hash=HASH, device=DEVICES[1], toolchain={"deuteron": "1"})
        write_bundle(tmp_path / FILE_NAME, [], predictors=[made])
    predictors = Predictors(tmp_path / FILE_NAME)
    large, whole = (Lookups(store, Metrics(), predictors) for _ in range(2))
    chain = make_record({"M": 1, "N": 1}).toolchain
    matches = Counter[str]()
    for _ in range(400):
        asked = [None, *({**chain, "deuteron": version} for version in [*CHAINS, "9"])]
        device = choose.choice(DEVICES).key
        question = Question(HASH, device, a_shape(choose, 0.1, 0.1), "f32", choose.choice(asked))
        strict = choose.random() < 0.2
        monkeypatch.setattr(groups, "MOST_WHOLE", 0)
        found = said(large, question, strict)
        assert found == said(large, question, strict), "as remembered"
        monkeypatch.setattr(groups, "MOST_WHOLE", 1 << 30)
        assert found == said(whole, question, strict)
        matches[found.match if isinstance(found, Answer) else "refused"] += 1
    assert matches.keys() >= {"exact", "nearest_shape", "other_toolchain", "default", "refused"}
    assert ("predicted" in matches) is predicted


def test_a_large_group_is_not_decoded(
    store: ServiceStore, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with store.write() as tx:
        for n in range(1, 101):
            put_record(tx, make_record({"M": n, "N": 64}, device=DEVICES[0], block=n), None)
    monkeypatch.setattr(groups, "MOST_WHOLE", 99)
    decoded: list[object] = []
    monkeypatch.setattr(groups, "read", lambda *given: decoded.append(given[2]) or read(*given))
    lookups = Lookups(store, Metrics(), Predictors(tmp_path / FILE_NAME))
    for n in (300, 301, 302, 300):
        answer = lookups.answer(Question(HASH, DEVICES[0].key, {"M": n, "N": 64}, "f32"))
        assert answer.record is not None and answer.record.shape["M"] == 100
    assert decoded == [keys for n in (300, 301, 302) for keys in ([f"M={n},N=64"], ["M=100,N=64"])]


def test_a_large_group_is_read_further_where_the_nearest_may_not_be_used(
    store: ServiceStore, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with store.write() as tx:
        for n in range(1, 101):
            record = make_record({"M": n, "N": 64}, device=DEVICES[0], block=512 if n == 61 else 64)
            put_record(tx, replace(record, reach=Reach(("BLOCK >= M",), sizes={"M": 1 << 62})), None)
    monkeypatch.setattr(groups, "MOST_WHOLE", 99)
    lookups = Lookups(store, Metrics(), Predictors(tmp_path / FILE_NAME))
    answer = lookups.answer(Question(HASH, DEVICES[0].key, {"M": 120, "N": 64}, "f32"))
    assert answer.record is not None and answer.record.shape["M"] == 61
    assert "the nearest shape is M=100,N=64, but the constraint BLOCK >= M is not true there" in answer.reason
    nothing = lookups.answer(Question(HASH, DEVICES[0].key, {"M": 520, "N": 64}, "f32"))
    assert (nothing.match, nothing.config) == ("default", {})


def test_a_change_of_a_large_group_is_seen(
    store: ServiceStore, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(groups, "MOST_WHOLE", 1)
    lookups = Lookups(store, Metrics(), Predictors(tmp_path / FILE_NAME))
    question = Question(HASH, DEVICES[0].key, {"M": 100, "N": 64}, "f32")
    for sizes, nearest in (((10, 20), 20), ((80,), 80), ((100,), 100)):
        with store.write() as tx:
            for n in sizes:
                put_record(tx, make_record({"M": n, "N": 64}, device=DEVICES[0], block=n), None)
        answer = lookups.answer(question)
        assert answer.record is not None and answer.record.shape["M"] == nearest


def test_groups_without_records_are_forgotten_in_time(
    store: ServiceStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(groups, "_MOST_RECORDS", 10)
    kept = Groups(Predictors(tmp_path / FILE_NAME))
    unknown: list[groups.Group] = [(f"{number:064x}", (), "f32") for number in range(20)]
    with store.read() as tx:
        for group in unknown:
            kept.load(tx, group, (0,), {"M": 1})
    found = [kept.remembered(group, (0,), {"M": 1}) is not None for group in unknown]
    assert found == [False] * 15 + [True] * 5


def test_a_large_group_that_was_emptied_answers_as_one_that_never_had_records(
    store: ServiceStore, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with store.write() as tx:
        for device, n in ((DEVICES[0], 10), (DEVICES[0], 20), (DEVICES[1], 30)):
            put_record(tx, make_record({"M": n, "N": 64}, device=device), None)
    monkeypatch.setattr(groups, "MOST_WHOLE", 1)
    before, after = (Lookups(store, Metrics(), Predictors(tmp_path / FILE_NAME)) for _ in range(2))
    questions = [Question(HASH, DEVICES[0].key, {"M": 100, dim: 64}, "f32") for dim in ("N", "Z")]
    assert before.answer(questions[0]).match == "nearest_shape"
    with store.write() as tx:
        for config in [c for c in tx.configs.page() if c.device_key == DEVICES[0].key]:
            tx.configs.withdraw(config.id, who="me", reason="wrong")
    found = [said(before, question, strict=False) for question in questions]
    assert found == [said(after, question, strict=False) for question in questions]
    assert isinstance(found[0], Answer) and "the kernel was tuned for" in found[0].reason
    with store.write() as tx:
        put_record(tx, make_record({"M": 30, "N": 64}, device=DEVICES[2]), None)
    for size in (101, 100):  # of which the second was asked before
        answer = before.answer(Question(HASH, DEVICES[0].key, {"M": size, "N": 64}, "f32"))
        assert all(f"{device.key} (f32)" in answer.reason for device in DEVICES[1:])
