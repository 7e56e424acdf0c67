"""What sessions write, and when: formats, standard output, phases, and files that cannot be written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from child_names import names

import deuteron.profiler as proton
from deuteron.profiler.session import registry


def test_formats_and_standard_output(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    proton.start("-")
    with proton.scope("A", {"m": 1}):
        pass
    text = proton.data.get_json()
    proton.finalize()
    assert capfdbinary.readouterr().out.decode() == text
    proton.start("")
    packed = proton.data.get_msgpack()
    proton.finalize(output_format="hatchet_msgpack")
    assert capfdbinary.readouterr().out == packed
    proton.start("p{pid}")
    proton.finalize(output_format="hatchet_msgpack")
    assert [path.suffix for path in tmp_path.iterdir()] == [".hatchet_msgpack"]
    assert "{" not in next(tmp_path.iterdir()).name
    proton.start("q")
    with pytest.raises(ValueError, match="unknown output format"):
        proton.finalize(output_format="pdf")
    with pytest.raises(ValueError, match="cannot be written as chrome_trace"):
        proton.finalize(output_format="chrome_trace")


def test_phases(tree: Callable[..., dict]) -> None:
    session = proton.start("p", backend="cpu")
    with proton.scope("A", {"m": 1}):
        assert proton.data.advance_phase(session) == 1
    with proton.scope("B", {"m": 1}):
        pass
    assert names(proton.data.get(session, 0)[0]) == ["A"]
    assert names(proton.data.get(session, 1)[0]) == ["B"]
    assert proton.data.is_phase_complete(session, 0)
    assert not proton.data.is_phase_complete(session, 1)
    proton.data.clear(session, 0)
    with pytest.raises(IndexError, match="phase 0 of session 0 has no data"):
        proton.data.get(session, 0)
    proton.finalize()
    assert sorted(path.name for path in Path().iterdir()) == ["p.part_1.hatchet"]
    assert proton.data.get(None) is None


def test_periodic_flushing_writes_and_drops_complete_phases() -> None:
    session = proton.start("p", mode="periodic_flushing:format=hatchet_msgpack")
    with proton.scope("A", {"m": 1}):
        pass
    proton.data.advance_phase(session)
    assert [path.name for path in Path().iterdir()] == ["p.part_0.hatchet_msgpack"]
    with pytest.raises(IndexError):
        proton.data.get(session, 0)
    proton.finalize()
    assert sorted(path.name for path in Path().iterdir()) == [
        "p.part_0.hatchet_msgpack",
        "p.part_1.hatchet_msgpack",
    ]


def test_a_session_whose_phases_cannot_be_written_leaves_the_others_alone() -> None:
    Path("gone").mkdir()
    lost = proton.start("gone/p", mode="periodic_flushing", backend="cpu")
    kept = proton.start("q", backend="cpu")
    with proton.scope("A", {"m": 1}):
        pass
    Path("gone").rmdir()
    with pytest.raises(proton.ProfileFileError, match="cannot write .*gone/p.part_0.hatchet"):
        proton.data.advance_phase(lost)
    assert proton.data.advance_phase(kept) == 1
    with proton.scope("B", {"m": 1}):
        pass
    proton.deactivate(kept, flushing=True)
    with pytest.raises(proton.ProfileFileError, match="cannot write .*gone/p.part_0.hatchet"):
        proton.deactivate(flushing=True)
    assert not registry.active
    proton.finalize(kept)
    again = proton.start("r", backend="cpu")
    with pytest.raises(proton.ProfileFileError, match="cannot write .*gone/p.part_0.hatchet"):
        proton.finalize()
    assert list(registry.sessions) == [lost] and again not in registry.sessions
    Path("gone").mkdir()
    proton.finalize()
    written = sorted(str(path) for path in Path().rglob("*.hatchet"))
    assert written == [
        "gone/p.part_0.hatchet",
        "gone/p.part_1.hatchet",
        "q.part_0.hatchet",
        "q.part_1.hatchet",
        "r.hatchet",
    ]
    assert names(json.loads(Path("gone/p.part_0.hatchet").read_text())[0]) == ["A"]


def test_a_session_that_cannot_be_written_is_kept(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    proton.start("d/p")
    with proton.scope("A", {"m": 1}):
        pass
    (tmp_path / "d").rmdir()
    with pytest.raises(proton.ProfileFileError, match="cannot write"):
        proton.finalize()
    (tmp_path / "d").mkdir()
    proton.finalize()
    assert proton.Profile.read("d/p.hatchet").node(("A",)).metrics == {"m": 1}
