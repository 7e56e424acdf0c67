"""The store's contract for configurations: versions, which record of a key stays, history, withdrawal, pins."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from store_rows import new_config

from deuteron.server.store import (
    ConfigAction,
    Conflict,
    NotFound,
    ServiceStore,
    StoredConfig,
)


def test_every_change_raises_the_version(store: ServiceStore) -> None:
    with store.read() as tx:
        assert tx.configs.version() == 0
    with store.write() as tx:
        tx.configs.put(new_config())
        tx.configs.put(new_config(shape_key="M=9"))
        tx.configs.put(new_config(dtype="f16"))
    with store.read() as tx:
        assert tx.configs.version() == 3
        assert tx.configs.group_version("a" * 64, "cpu:x", "f32") == 2
        assert tx.configs.group_version("a" * 64, "cpu:x", "f16") == 1
        assert tx.configs.group_version("a" * 64, "cpu:x", "bf16") == 0
        assert tx.configs.count() == 3


@pytest.mark.parametrize(
    ("newcomer", "wins"),
    [
        ({"low_ns": 80.0, "high_ns": 85.0}, True),
        ({"low_ns": 100.0, "high_ns": 130.0}, True),
        ({"low_ns": 110.5, "high_ns": 130.0}, False),
        ({"low_ns": 10.0, "high_ns": 11.0, "checked": False}, False),
    ],
    ids=["faster", "overlapping", "slower", "unchecked"],
)
def test_a_stored_config_yields_only_to_one_that_is_not_slower(
    store: ServiceStore, newcomer: dict[str, object], wins: bool
) -> None:
    old, new = new_config(), new_config(**newcomer)
    with store.write() as tx:
        tx.configs.put(old)
        kept = tx.configs.put(new)
    assert kept is not None and kept == (new if wins else old)
    with store.read() as tx:
        assert [c.id for c in tx.configs.page(kernel_hash="a" * 64)] == [kept.id]


def test_history_has_every_record_and_a_job_keeps_its_results(store: ServiceStore) -> None:
    first = new_config(id="first", job_id="job-1")
    with store.write() as tx:
        tx.configs.put(first, who="worker-1")
        tx.configs.put(new_config(id="slower", job_id="job-2", low_ns=200.0, high_ns=210.0), who="worker-2")
        tx.configs.put(new_config(id="newer", job_id="job-3", body='{"n": 2}'), who="worker-3")
        tx.configs.put(new_config(id="elsewhere", shape_key="M=9,N=9"))
    with store.read() as tx:
        entries = tx.config_history.of_key(first)
        assert [(e.config_id, e.action, e.who) for e in entries] == [
            ("first", ConfigAction.STORED, "worker-1"),
            ("slower", ConfigAction.KEPT, "worker-2"),
            ("newer", ConfigAction.STORED, "worker-3"),
        ]
        assert entries[1].reason == "first is faster"
        for job, config in (("job-1", "first"), ("job-2", "slower"), ("job-3", "newer")):
            assert [entry.config_id for entry in tx.config_history.of_job(job)] == [config]
        latest = tx.config_history.latest("slower")
        assert latest is not None and latest.job_id == "job-2"
        assert tx.config_history.latest("nobody") is None


def test_a_job_found_what_arrived_with_it_on_the_worker_that_had_it_last(store: ServiceStore) -> None:
    """Whoever pins or withdraws its records later."""
    with store.write() as tx:
        tx.configs.put(new_config(id="first", job_id="job"))
        tx.configs.put(new_config(id="second", job_id="job", shape_key="M=9,N=9", toolchain_key="t2"))
        tx.configs.pin("first", pinned=True, who="ada", reason="for a while")
    with store.read() as tx:
        assert [entry.config_id for entry in tx.config_history.of_job("job")] == ["first", "second"]
        assert tx.config_history.toolchain_of("job") == "t2" and tx.config_history.toolchain_of("other") is None
        assert tx.config_history.toolchains_of(["job", "other"]) == {"job": "t2"}


def test_a_withdrawn_config_gives_way_to_the_one_before_and_never_comes_back(store: ServiceStore) -> None:
    with store.write() as tx:
        for name in ("a", "b", "c"):
            tx.configs.put(new_config(id=name, body=f'{{"checked": true, "name": "{name}"}}'))
    versions = []
    for gone, left in (("c", "b"), ("b", "a"), ("a", None)):
        with store.write() as tx:
            restored = tx.configs.withdraw(gone, who="me", reason="wrong")
            versions.append(tx.configs.version())
            assert (restored and restored.id) == left
            assert [json.loads(body)["name"] for body in tx.configs.stream()] == ([left] if left else [])
    assert versions == sorted(set(versions)), "lookups and bundles notice"
    with store.write() as tx:
        with pytest.raises(NotFound, match="no configuration a is stored"):
            tx.configs.withdraw("a", who="me", reason="again")
        last = tx.config_history.of_key(new_config())[-1]
        assert (last.config_id, last.action, last.who, last.reason) == ("a", ConfigAction.WITHDRAWN, "me", "wrong")
        tx.configs.put(new_config(id="d"))
        assert tx.configs.get("d").checked


@pytest.mark.parametrize("seed", range(4))
def test_records_that_arrive_stay_and_come_back_as_they_were(store: ServiceStore, seed: int) -> None:
    """Whatever arrives, is pinned and is withdrawn under three keys, what is stored is what lists of records say."""
    rng = random.Random(seed)
    arrived: dict[str, list[StoredConfig]] = {key: [] for key in ("M=1", "M=2", "M=3")}
    stored: dict[str, StoredConfig] = {}
    with store.write() as tx:
        for number in range(60):
            key, act = rng.choice(sorted(arrived)), rng.choice(["put", "put", "put", "withdraw", "pin"])
            old = stored.get(key)
            if act == "put":
                new = _made_long_ago(rng, f"r{number}", key)
                stays = old is not None and (old.pinned or old.checked > new.checked or new.low_ns > old.high_ns)
                if not stays:
                    stored[key] = new
                    arrived[key].append(new)
                assert tx.configs.put(new) == stored[key]
            elif old is not None and act == "pin":
                stored[key] = replace(old, pinned=rng.random() < 0.5)
                assert tx.configs.pin(old.id, pinned=stored[key].pinned, who="me", reason="") == stored[key]
            elif old is not None:
                del stored[key]
                arrived[key] = [config for config in arrived[key] if config.id != old.id]
                if arrived[key]:
                    stored[key] = arrived[key][-1]
                assert tx.configs.withdraw(old.id, who="me", reason="wrong") == stored.get(key)
            assert tx.configs.page() == sorted(stored.values(), key=lambda config: config.id)
            assert tx.configs.newest() == max((config.created_at for config in stored.values()), default=None)


def _made_long_ago(rng: random.Random, config_id: str, key: str) -> StoredConfig:
    created_at = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=rng.randrange(10**7))
    checked, low = rng.random() < 0.7, rng.uniform(50, 150)
    body = json.dumps({"id": config_id, "checked": checked, "created_at": created_at.isoformat()})
    return new_config(
        id=config_id,
        shape_key=key,
        job_id=rng.choice([None, f"job of {config_id}"]),
        checked=checked,
        low_ns=low,
        high_ns=low * rng.uniform(1, 1.5),
        body=body,
        created_at=created_at,
    )


def test_a_withdrawn_config_does_not_come_back_with_a_resumed_job(store: ServiceStore) -> None:
    with store.write() as tx:
        tx.configs.put(new_config(id="a", job_id="job"))
        tx.configs.withdraw("a", who="me", reason="wrong")
        assert tx.configs.put(new_config(id="a", job_id="job"), who="worker") is None
        assert list(tx.configs.stream()) == []
        last = tx.config_history.of_key(new_config())[-1]
        assert (last.action, last.reason) == (ConfigAction.KEPT, "a was withdrawn")
        tx.configs.put(new_config(id="b"))
        kept = tx.configs.put(new_config(id="a", low_ns=1.0, high_ns=2.0))
        assert kept is not None and kept.id == "b"


def test_a_job_has_each_of_its_records_once(store: ServiceStore) -> None:
    with store.write() as tx:
        tx.configs.put(new_config(id="a", job_id="job"))
        tx.configs.put(new_config(id="b", job_id="job", shape_key="M=9"))
        tx.configs.put(new_config(id="a", job_id="job"))  # which was resumed
        tx.configs.put(new_config(id="later", job_id="another"))
        tx.configs.withdraw("later", who="me", reason="wrong")  # a is the answer again
        assert [entry.config_id for entry in tx.config_history.of_job("job")] == ["a", "b"]
        assert [entry.config_id for entry in tx.config_history.of_job("another")] == ["later"]


@pytest.mark.parametrize("there", [False, True])
def test_an_id_is_of_one_key(store: ServiceStore, there: bool) -> None:
    other = new_config(id="a", device_key="cuda:y")
    with store.write() as tx:
        tx.configs.put(new_config(id="a"))
        if there:
            tx.configs.put(replace(other, id="b"))
    with store.write() as tx, pytest.raises(Conflict, match="a under another key"):
        tx.configs.put(other)
    with store.write() as tx:
        tx.configs.withdraw("a", who="me", reason="wrong")
        with pytest.raises(Conflict):
            tx.configs.put(other)


def test_a_pinned_config_stays_whatever_arrives(store: ServiceStore) -> None:
    with store.write() as tx:
        tx.configs.put(new_config(id="pinned"))
        assert tx.configs.pin("pinned", pinned=True, who="me", reason="release").pinned
        stays = tx.configs.put(new_config(id="faster", low_ns=1.0, high_ns=2.0))
        assert stays is not None and stays.id == "pinned"
        assert tx.configs.get("pinned").pinned
        tx.configs.pin("pinned", pinned=True, who="me", reason="twice changes nothing")
        tx.configs.pin("pinned", pinned=False, who="me", reason="over")
        tx.configs.put(new_config(id="faster2", low_ns=1.0, high_ns=2.0))
        assert not tx.configs.get("faster2").pinned
    with store.read() as tx:
        actions = [entry.action.value for entry in tx.config_history.of_key(new_config())]
        assert actions == ["stored", "pinned", "kept", "unpinned", "stored"]


def test_candidates_share_kernel_device_and_dtype(store: ServiceStore) -> None:
    mine = new_config()
    others = [
        new_config(kernel_hash="c" * 64),
        new_config(device_key="cuda:y"),
        new_config(dtype="bf16"),
    ]
    with store.write() as tx:
        tx.configs.add_many([mine, *others])
    with store.read() as tx:
        assert tx.configs.candidates("a" * 64, ["cpu:x"], "f32") == [mine.body]
        assert len(list(tx.configs.stream())) == 4
        assert len(list(tx.configs.stream(kernel_hash="a" * 64, device_key="cpu:x"))) == 2


def test_two_writers_of_one_key_leave_one_row(store: ServiceStore) -> None:
    def put(number: int) -> None:
        with store.write() as tx:
            tx.configs.put(new_config(low_ns=100.0 - 2 * number, high_ns=101.0 - 2 * number))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(put, range(12)))
    with store.read() as tx:
        (config,) = tx.configs.page(kernel_hash="a" * 64)
        assert tx.configs.count() == 1
    assert config.low_ns == 78.0
