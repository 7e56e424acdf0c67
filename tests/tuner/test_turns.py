"""Turns on a GPU: what is timed there, and what is computed between."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deuteron.compiler import knobs
from deuteron.tuner.evaluate import turns


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[Path]:
    with knobs.cache_dir.scope(tmp_path):
        yield tmp_path / "turns" / "GPU-1.lock"


def held(path: Path) -> bool:
    with path.open("w") as other:
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_one_process_has_a_gpu_at_a_time(lock: Path) -> None:
    with turns.timing("GPU-1"):
        assert held(lock)
        with turns.timing("GPU-2"):
            pass
    assert not held(lock)
    with turns.chunk("GPU-1"):
        assert held(lock)
    assert not held(lock)


def test_what_is_computed_waits_for_what_is_timed(lock: Path) -> None:
    """Between two timings it has its turn, although the next one begins at once."""
    order: list[str] = []
    ready, go = threading.Event(), threading.Event()

    def compute() -> None:
        ready.set()
        go.wait()
        with turns.chunk("GPU-1"):
            order.append("computed")

    thread = threading.Thread(target=compute)
    thread.start()
    ready.wait()
    for number in range(40):
        with turns.timing("GPU-1"):
            go.set()
            time.sleep(0.02)
            order.append("timed")
        if order[-1] == "computed":
            break
        time.sleep(0.002)
        if "computed" in order:
            break
        assert number < 30
    thread.join()
    assert order[0] == "timed" and "computed" in order


def test_what_is_timed_does_not_wait_for_ever(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TIMING_PATIENCE_SECONDS", 0.05)
    with turns.timing("GPU-1"):
        began = time.monotonic()
        with turns.timing("GPU-1"):
            assert time.monotonic() - began < 5


def test_without_a_place_for_locks_nobody_waits(tmp_path: Path) -> None:
    (tmp_path / "turns").write_text("a file where the folder would be")
    with knobs.cache_dir.scope(tmp_path), turns.timing("GPU-1"), turns.chunk("GPU-1"):
        pass
