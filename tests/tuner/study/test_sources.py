"""What a local search leaves behind, read as the start of another one."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from deuteron.tuner.events import ShapeFinished, TuneEvent
from deuteron.tuner.experience import sources
from deuteron.tuner.experience.foreign import SourceError
from deuteron.tuner.experience.sources import read_logs, read_records
from deuteron.tuner.journal import read_events
from deuteron.tuner.local import LocalResult, tune_locally


def tune(fakes: ModuleType, folder: Path, sources: tuple[Path, ...] = ()) -> tuple[LocalResult, ShapeFinished]:
    known = [log for source in sources for log in read_logs(str(source), "softmax_kernel")]
    events: list[TuneEvent] = []
    result = tune_locally(
        fakes.job(trials=25, strategy="surrogate", seed=len(sources)),
        emit=events.append,
        folder=folder,
        evaluator=lambda problem, device, default, seed: fakes.FakeEvaluator(fakes.bowl),
        known=known,
    )
    return result, next(event for event in events if isinstance(event, ShapeFinished))


def test_journals_and_bundles_are_read(fakes: ModuleType, tmp_path: Path) -> None:
    result, _ = tune(fakes, tmp_path / "all" / "one")
    (expected,) = read_logs(str(result.folder), "softmax_kernel")
    assert len(expected.known) == 25 and expected.shape == {"M": 4096, "N": 512}
    assert expected.kernel_hash == result.records[0].kernel_hash
    assert expected.device == result.records[0].device.key
    assert expected.toolchain == result.records[0].toolchain != {}
    for source in (result.folder / "journal.jsonl", tmp_path / "all"):
        assert read_logs(str(source), "softmax_kernel") == [expected]
    (of_bundle,) = read_logs(str(result.bundle), "softmax_kernel")
    assert [known.config for known in of_bundle.known] == [{"ROWS": 4, "TILES": 2}, {"ROWS": 1, "TILES": 1}]
    assert of_bundle.toolchain == expected.toolchain
    assert read_logs(str(result.bundle), "matmul_kernel") == []


def test_records_are_read_from_the_same_places(fakes: ModuleType, tmp_path: Path) -> None:
    result, _ = tune(fakes, tmp_path / "all" / "one")
    for source in (result.folder, result.folder / "journal.jsonl", tmp_path / "all", result.bundle):
        assert read_records(str(source)) == result.records
    assert read_records("http://127.0.0.1:1") == []


def test_a_journal_that_cannot_be_read_is_not_an_empty_one(
    fakes: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails behind the first line, say."""

    def failing(path: Path) -> Iterator[object]:
        yield from itertools.islice(read_events(path), 2)
        raise OSError(errno.EIO, "Input/output error")

    tune(fakes, tmp_path / "first")
    monkeypatch.setattr(sources, "read_events", failing)
    with pytest.raises(SourceError, match="cannot be read: Input/output error"):
        read_logs(str(tmp_path / "first"), "softmax_kernel")


def test_a_search_starts_from_either(fakes: ModuleType, tmp_path: Path) -> None:
    """A journal predicts and ends the search early; a bundle says what to try first, and the search goes on."""
    result, cold = tune(fakes, tmp_path / "first")
    assert cold.start is None
    _, of_journal = tune(fakes, tmp_path / "second", (result.folder,))
    assert of_journal.start is not None and of_journal.start.ended_early
    _, of_bundle = tune(fakes, tmp_path / "third", (result.bundle,))
    assert of_bundle.start is not None and not of_bundle.start.ended_early
    assert of_bundle.start.agreement is None and of_bundle.start.share is not None and of_bundle.start.share > 0.98
