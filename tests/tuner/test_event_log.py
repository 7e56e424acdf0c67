"""The event log: whole lines survive, torn ones do not, one writer at a time."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deuteron.tuner.event_log import EventLog, read_lines


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def test_lines_come_back_in_order(path: Path) -> None:
    with EventLog(path) as log:
        assert log.recover() == []
        log.append({"b": 1, "a": "line\nbreak"})
        log.append({"c": None})
        assert list(read_lines(path)) == [b'{"a":"line\\nbreak","b":1}', b'{"c":null}']
    with EventLog(path) as log:
        assert log.recover() == list(read_lines(path))
        log.append({"d": 2})
    assert len(list(read_lines(path))) == 3


@pytest.mark.parametrize("torn", [b'{"a":', b"{", b'{"whole":"but without its newline"}'])
def test_a_torn_line_never_counted(path: Path, torn: bytes) -> None:
    path.write_bytes(b'{"n":1}\n' + torn)
    assert list(read_lines(path)) == [b'{"n":1}']
    with EventLog(path) as log:
        assert log.recover() == [b'{"n":1}']
        log.append({"n": 2})
    assert path.read_bytes() == b'{"n":1}\n{"n":2}\n'


def test_one_writer_at_a_time(path: Path) -> None:
    with EventLog(path), pytest.raises(BlockingIOError):
        EventLog(path)
    EventLog(path).close()


def test_only_what_is_there_can_be_recovered(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        EventLog(path, create=False)
    assert not path.exists()


def test_numbers_that_json_lacks_are_refused(path: Path) -> None:
    with EventLog(path) as log:
        with pytest.raises(ValueError, match="not JSON compliant"):
            log.append({"n": float("nan")})
        assert log.recover() == []


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Files of this process hold at most ``size`` bytes, as on a disk that is full by then."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_line_for_which_there_is_no_room_is_refused_whole(path: Path) -> None:
    with EventLog(path) as log:
        log.append({"n": 1})
        with room_for(20), pytest.raises(OSError, match="too large"):
            log.append({"text": "longer than what is left"})
        assert path.read_bytes() == b'{"n":1}\n'
        log.append({"n": 2})
    assert path.read_bytes() == b'{"n":1}\n{"n":2}\n'


@pytest.mark.parametrize("create", [True, False])
def test_lines_follow_what_was_whole(path: Path, create: bool) -> None:
    path.write_bytes(b'{"n":1}\n{"torn":')
    with EventLog(path, create=create) as log:
        log.recover()
        log.append({"n": 2})
    assert path.read_bytes() == b'{"n":1}\n{"n":2}\n'
