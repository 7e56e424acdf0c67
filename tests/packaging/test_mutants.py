"""The list of seeded mistakes does not rot, and its runner tells a caught one from a harmless one."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    spec = importlib.util.spec_from_file_location("deuteron_mutants", ROOT / "benchmarks" / "mutants.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_every_text_is_found_once_and_every_test_exists(mutants) -> None:
    found = mutants.read_mutants()
    assert len(found) >= 60
    areas = "language tile layout gpu cpu runtime profiler tuner server"
    assert {m.area for m in found} >= set(areas.split())
    for mutant in found:
        mutants.locate(mutant)
        assert mutant.old != mutant.new
        assert mutant.tests, mutant.name
        for test in mutant.tests:
            assert (ROOT / test.partition("::")[0]).exists(), f"{mutant.name}: there is no {test}"
    assert max(Counter((m.area, m.name) for m in found).values()) == 1
    assert sum(bool(m.equivalent) for m in found) <= len(found) // 30


def test_a_text_that_is_not_there_is_stale(mutants) -> None:
    with pytest.raises(mutants.StaleMutant, match="x/y: .* is in no file, not in one place"):
        mutants.locate(mutants.Mutant("y", "x", "layout/f2.py", "no such text", "", ()))
    with pytest.raises(mutants.StaleMutant, match=r"f2\.py \(\d+ times\)"):
        mutants.locate(mutants.Mutant("y", "x", "layout/f2.py", "def ", "", ()))
    moved = mutants.Mutant("y", "x", "old_name.py", "class LinearMap", "", ())
    assert mutants.locate(moved) == Path("compiler/layout/f2.py")


def test_verdicts(mutants, tmp_path) -> None:
    tests = ("tests/compiler/layout/test_f2.py",)

    def mutant(name: str, old: str, new: str) -> object:
        return mutants.Mutant(name, "layout", "layout/f2.py", old, new, tests)

    wrong = mutant("wrong", "def combine(", "def combine(*_):\n    return 1\n\n\ndef _combine(")
    harmless = mutant("harmless", "def combine(", "def combine( ")
    endless = mutant("endless", "def combine(", "while True:\n    pass\n\n\ndef combine(")
    copy = mutants.Copy(tmp_path)
    text = (copy.root / mutants.locate(wrong)).read_text()
    caught = mutants.judge(wrong, copy)
    assert caught.by.startswith("tests/compiler/layout/test_f2.py")
    assert not mutants.judge(harmless, copy).caught
    assert mutants.judge(endless, copy, seconds=1).by == "time-out of 1 s"
    assert (copy.root / mutants.locate(wrong)).read_text() == text


def test_nothing_is_judged_when_the_tests_fail_by_themselves(mutants) -> None:
    broken = SimpleNamespace(run=lambda tests, seconds: (1, f"FAILED {tests[0]}"))
    with pytest.raises(mutants.BrokenRun, match="without any mutant.*\n.*FAILED tests/a.py"):
        mutants.check_unmodified(broken, [mutants.Mutant("y", "x", "f.py", "a", "b", ("tests/a.py",))])
