"""Files that are whole under their name or not there."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from deuteron.cli import main
from deuteron.compiler.whole_file import whole_file, write_whole
from deuteron.profiler import Profile
from deuteron.profiler.viewer.arguments import main as viewer_main
from deuteron.tuner import write_bundle


def test_an_earlier_file_stays_until_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), whole_file(path) as file:
        file.write(b"half")
        file.flush()
        assert path.read_bytes() == b"old"
        raise RuntimeError
    assert path.read_bytes() == b"old"
    with whole_file(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


def test_what_cannot_be_written_is_named_as_it_was_given(tmp_path: Path) -> None:
    """The name was that of the unfinished file."""
    with pytest.raises(FileNotFoundError) as caught:
        write_whole(tmp_path / "missing" / "file", b"")
    assert caught.value.filename == str(tmp_path / "missing" / "file")


def test_a_link_stays_one(tmp_path: Path) -> None:
    """Also one to a file that is not there yet."""
    link, target = tmp_path / "link", tmp_path / "below/target"
    target.parent.mkdir()
    link.symlink_to(target)
    for content in (b"first", b"second"):
        with whole_file(link) as file:
            file.write(content)
        assert link.is_symlink() and target.read_bytes() == content
    assert os.listdir(target.parent) == ["target"]


@pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}", "link"])
def test_what_the_process_has_open_is_written_where_it_stands(name: str, tmp_path: Path) -> None:
    """As where a shell sends /dev/stdout to a file, into which other commands write, too."""
    log, link = tmp_path / "log", tmp_path / "link"
    log.write_bytes(b"earlier\n")
    with log.open("ab", buffering=0) as opened:
        link.symlink_to(f"/dev/fd/{opened.fileno()}")
        opened.write(b"header\n")
        with whole_file(link if name == "link" else name.format(opened.fileno())) as file:
            file.write(b"content\n")
        opened.write(b"footer\n")
    assert log.read_bytes() == b"earlier\nheader\ncontent\nfooter\n"


def read_from(pipe: Path, write: Callable[[], object]) -> bytes:
    """What ``write`` writes to a pipe, which is one afterwards."""
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write()
    reader.join(10)
    assert stat.S_ISFIFO(pipe.stat().st_mode) and os.listdir(pipe.parent) == [pipe.name]
    return found[0]


def test_what_is_no_file_is_written_and_not_replaced(tmp_path: Path) -> None:
    """Who writes to /dev/null as root had no /dev/null afterwards."""
    folders = [tmp_path / name for name in ("plain", "viewer", "bundle")]
    for folder in folders:
        folder.mkdir()
    plain, viewer, bundle = (folder / "pipe" for folder in folders)

    def write() -> None:
        with whole_file(plain) as file:
            file.write(b"x" * 100_000)

    assert read_from(plain, write) == b"x" * 100_000
    profile = Profile()
    profile.add_launches(profile.node(("kernel",)), count=1, time_ns=5, device_type="CUDA", device_id=0)
    profile.write(tmp_path / "p.hatchet")
    shown = read_from(viewer, lambda: viewer_main(["-m", "time", "-o", str(viewer), str(tmp_path / "p.hatchet")]))
    assert b"ROOT" in shown
    assert b'"count":0' in read_from(bundle, lambda: write_bundle(bundle, []))


def test_exports_to_a_pipe(tmp_path: Path) -> None:
    source = tmp_path / "empty.bundle"
    write_bundle(source, [])
    (tmp_path / "out").mkdir()
    pipe = tmp_path / "out/pipe"
    codes: list[int] = []
    text = read_from(pipe, lambda: codes.append(main(["cache", "export", str(source), "-o", str(pipe)])))
    assert codes == [0] and json.loads(text) == []


def test_permissions_and_names_that_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "key"
    write_whole(path, "first", mode=0o600, new=True, durable=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        write_whole(path, "second", new=True)
    path.unlink()
    with pytest.raises(FileExistsError), whole_file(path, new=True) as file:  # somebody else comes first
        file.write(b"third")
        path.write_text("theirs")
    assert path.read_text() == "theirs" and os.listdir(tmp_path) == ["key"]
