"""Knobs: names, precedence, strict parsing, scopes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from deuteron.compiler import knobs
from deuteron.compiler.errors import KnobError

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for knob in knobs.all_knobs():
        for name in knob.names:
            monkeypatch.delenv(name, raising=False)
    for name in ("TRITON_HOME", "TRITON_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_own_name_wins_over_tritons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert knobs.interpret.get() is True
    assert knobs.interpret.source() == "TRITON_INTERPRET"
    monkeypatch.setenv("DEUTERON_INTERPRET", "0")
    assert knobs.interpret.get() is False
    assert knobs.interpret.source() == "DEUTERON_INTERPRET"


def test_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("", " "):
        monkeypatch.setenv("DEUTERON_DEBUG", text)
        assert knobs.debug.get() is False
        assert knobs.debug.source() is None


@pytest.mark.parametrize(
    ("name", "text", "names_remedy"),
    [
        ("TRITON_DEBUG", "maybe", "use 0 or 1"),
        ("DEUTERON_CPU_THREADS", "-1", "a whole number from 0 to 1024"),
        ("DEUTERON_CPU_THREADS", "two", "a whole number from 0 to 1024"),
        ("DEUTERON_CACHE_BYTES", "lots", "bytes, or a number with K, M, G or T"),
        ("TRITON_F32_DEFAULT", "fp32", "ieee, tf32 or tf32x3"),
        ("TRITON_OVERRIDE_ARCH", "hopper", "90a"),
    ],
)
def test_wrong_text_names_variable_and_values(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, names_remedy: str
) -> None:
    monkeypatch.setenv(name, text)
    knob = next(k for k in knobs.all_knobs() if name in k.names)
    with pytest.raises(KnobError) as caught:
        knob.get()
    assert name in caught.value.message
    assert repr(text) in caught.value.message
    assert names_remedy in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("123", 123),
        ("1K", 1024),
        ("2g", 2 << 30),
        ("512MiB", 512 << 20),
        ("1TB", 1 << 40),
    ],
)
def test_sizes(monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> None:
    monkeypatch.setenv("DEUTERON_CACHE_BYTES", text)
    assert knobs.cache_bytes.get() == size


@pytest.mark.parametrize("text", ["90a", "sm90a", "sm_90a", "cuda:90a", "SM90A"])
def test_override_arch_spellings(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TRITON_OVERRIDE_ARCH", text)
    assert knobs.override_arch.get() == "cuda:90a"


def test_scope_nests_and_counts() -> None:
    before = knobs.epoch.value
    with knobs.cpu_threads.scope(3):
        assert knobs.cpu_threads.get() == 3
        with knobs.cpu_threads.scope(5):
            assert knobs.cpu_threads.get() == 5
        assert knobs.cpu_threads.get() == 3
    assert knobs.cpu_threads.get() == 0
    assert knobs.epoch.value == before + 4


def test_folders_follow_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_HOME", str(tmp_path))
    assert knobs.home.get() == tmp_path / ".deuteron"
    assert knobs.cache_dir.get() == tmp_path / ".deuteron" / "cache"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "t"))
    assert knobs.cache_dir.get() == tmp_path / "t" / "deuteron"
    monkeypatch.setenv("DEUTERON_CACHE_DIR", str(tmp_path / "d"))
    assert knobs.cache_dir.get() == tmp_path / "d"


def test_every_knob_is_described() -> None:
    text = knobs.describe()
    for knob in knobs.all_knobs():
        assert knob.doc.endswith(".")
        assert all(name in text for name in knob.names)


@pytest.mark.parametrize("room", ["compiler", "profiler", "tuner"])
def test_nothing_else_reads_the_environment(room: str) -> None:
    for path in sorted((ROOT / room).rglob("*.py")):
        if path == ROOT / "compiler" / "knobs.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            read = isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
            assert not read, f"{path.relative_to(ROOT)}:{node.lineno} reads the environment"


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("cpu_threads", [0, 1024], [5000, -1, 2.5, "2", None]),
        ("debug", [True, False], ["yes", None, 2]),
        ("cache_bytes", [0, 1 << 40], [-1, "1G"]),
        ("f32_default", ["ieee"], ["fp32", ""]),
        ("override_arch", ["cuda:90a", None], ["hopper", 90]),
        ("ptxas_path", [Path("/usr/bin/ptxas"), Path("ptxas"), None], ["ptxas", ""]),
        ("device", ["cuda:1", ""], [None, 1]),
        ("home", [Path("/home")], [None]),
    ],
)
def test_a_program_gives_what_a_variable_could_say(name: str, good: list[object], bad: list[object]) -> None:
    knob = getattr(knobs, name)
    for value in good:
        with knob.scope(value):
            assert knob.get() == value
    for value in bad:
        with pytest.raises(KnobError) as caught, knob.scope(value):
            pass
        assert f"knobs.{name}.scope({value!r})" in str(caught.value) and knob.allowed in str(caught.value)
    assert knob.source() is None


def test_every_knob_says_its_name_in_python() -> None:
    assert [knob.attribute for knob in knobs.all_knobs() if getattr(knobs, knob.attribute[6:], None) is not knob] == []
    assert "DEUTERON_CPU_THREADS, knobs.cpu_threads (default: 0)" in knobs.describe()
