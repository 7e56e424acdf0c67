"""The disk cache: round trips, damage, bounds, folders that cannot be written, many processes, kill -9."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deuteron.compiler.runtime.variant.cache import (
    CacheWarning,
    DamagedEntry,
    DiskCache,
    Entry,
    decode,
    encode,
)

KEY = hashlib.sha256(b"a key").hexdigest()
BIG = 1 << 40

entries = st.builds(
    Entry,
    st.dictionaries(st.text(max_size=8), st.none() | st.integers() | st.text(max_size=8)),
    st.dictionaries(st.text(max_size=8), st.binary(max_size=200), max_size=4),
)


def key_of(i: int) -> str:
    return hashlib.sha256(str(i).encode()).hexdigest()


@given(entries)
@settings(max_examples=50, deadline=None)
def test_round_trip(entry: Entry) -> None:
    assert decode(encode(entry)) == entry


@given(entries, st.data())
@settings(max_examples=100, deadline=None)
def test_any_flipped_bit_is_found(entry: Entry, data: st.DataObject) -> None:
    raw = bytearray(encode(entry))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(DamagedEntry):
        decode(bytes(raw))


@given(entries, st.data())
@settings(max_examples=50, deadline=None)
def test_any_truncation_is_found(entry: Entry, data: st.DataObject) -> None:
    raw = encode(entry)
    with pytest.raises(DamagedEntry):
        decode(raw[: data.draw(st.integers(0, len(raw) - 1))])


@pytest.mark.parametrize("damage", [b"", b"garbage", encode(Entry({}, {"x": b"1"}))[:-1]])
def test_damaged_entry_warns_and_can_be_replaced(tmp_path: Path, damage: bytes) -> None:
    cache = DiskCache(tmp_path, BIG)
    good = Entry({"n": 1}, {"code": b"abc"})
    cache.put(KEY, good)
    cache.path(KEY).write_bytes(damage)
    with pytest.warns(CacheWarning, match="is damaged"):
        assert cache.get(KEY) is None
    cache.put(KEY, good)
    assert cache.get(KEY) == good


@given(sizes=st.lists(st.integers(0, 4000), min_size=1, max_size=25))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_size_stays_under_its_bound(tmp_path: Path, sizes: list[int]) -> None:
    folder = tmp_path / str(time.perf_counter_ns())
    cache = DiskCache(folder, 10_000)
    for i, size in enumerate(sizes):
        cache.put(key_of(i), Entry({}, {"x": bytes(size)}))
        total = sum(p.stat().st_size for p in folder.rglob("*.entry"))
        assert total <= 10_000


def test_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 3500)
    for i in range(3):
        cache.put(key_of(i), Entry({}, {"x": bytes(900)}))
        os.utime(cache.path(key_of(i)), (i, i))
    assert cache.get(key_of(0)) is not None  # now the most recently used
    cache.put(key_of(3), Entry({}, {"x": bytes(900)}))
    assert [cache.get(key_of(i)) is not None for i in range(4)] == [True, False, True, True]


def test_zero_bound_turns_it_off(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "off", 0)
    cache.put(KEY, Entry({}, {}))
    assert cache.get(KEY) is None
    assert not (tmp_path / "off").exists()


def test_unwritable_folder_says_so_once(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("a file where the folder should be")
    cache = DiskCache(blocker / "cache", BIG)
    with pytest.warns(CacheWarning, match="cannot be written.*DEUTERON_CACHE_DIR"):
        cache.put(KEY, Entry({}, {}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put(KEY, Entry({}, {}))
        assert cache.get(KEY) is None


def test_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    cache = DiskCache(tmp_path, BIG)
    with pytest.warns(CacheWarning, match="No space left"):
        cache.put(KEY, Entry({}, {}))
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_what_dead_writers_left_is_swept(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, BIG)
    folder = cache.path(KEY).parent
    folder.mkdir(parents=True)
    old, fresh = folder / "old.writing", folder / "fresh.writing"
    old.write_bytes(b"x")
    fresh.write_bytes(b"x")
    os.utime(old, (1, 1))
    cache.put(KEY, Entry({}, {}))
    assert not old.exists()
    assert fresh.exists()


WORKER = """
import hashlib, random, sys, warnings
from pathlib import Path
from deuteron.compiler.runtime.variant.cache import DiskCache, Entry
warnings.simplefilter("error")  # a damaged entry would be a warning
cache = DiskCache(Path(sys.argv[1]), int(sys.argv[2]))
rng = random.Random(int(sys.argv[3]))
rounds = int(sys.argv[4])
print("ready", flush=True)
while rounds:
    rounds -= 1
    i = rng.randrange(8)
    key = hashlib.sha256(str(i).encode()).hexdigest()
    want = bytes([i]) * 200_000
    found = cache.get(key)
    assert found is None or found.blobs["x"] == want
    if found is None or rng.random() < 0.5:
        cache.put(key, Entry({"i": i}, {"x": want}))
"""


def start_worker(folder: Path, limit: int, seed: int, rounds: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", WORKER, str(folder), str(limit), str(seed), str(rounds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_processes_share_a_folder_while_evicting(tmp_path: Path) -> None:
    workers = [start_worker(tmp_path, 900_000, seed, 150) for seed in range(4)]
    for worker in workers:
        _, err = worker.communicate(timeout=60)
        assert worker.returncode == 0, err.decode()


def test_killed_writers_damage_nothing(tmp_path: Path) -> None:
    for seed in range(4):
        worker = start_worker(tmp_path, BIG, seed, 10**9)
        assert worker.stdout is not None
        worker.stdout.readline()
        time.sleep(0.05 + 0.02 * seed)
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache = DiskCache(tmp_path, BIG)
        found = [cache.get(key_of(i)) for i in range(8)]
    assert any(found)
    assert all(e is None or e.blobs["x"] == bytes([i]) * 200_000 for i, e in enumerate(found))
