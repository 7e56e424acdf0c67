"""A seeded part of the random kernels on every target that needs no GPU, a larger one on a GPU, and tests that they
would notice a mistake."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

import kernels
import ml_dtypes
import numpy as np
import pytest
from random_kernels import bounds, children, families, kinds, launching, rendering, shrinking
from random_kernels.children import Child, Team
from random_kernels.outcomes import Outcome, Work, check

from deuteron.compiler.targets import cpu

#: Kernels of each target, without products and around them: those of one test after the other's.
SAMPLE = {"cpu": (70, 6), "interpreter": (30, 4), "eager": (4, 1), "sm_80": (6, 4), "sm_90a": (6, 4)}
FIRST = 1_000_000
#: Kernels for a GPU, and the processes that launch them.
GPU_SAMPLE, GPU_PROCESSES = 200, 6


def findings(works: Iterable[Work], processes: int = 1) -> list[str]:
    with Team(processes, seconds=120) as team:
        return [f"{found}\n{rendering.text_of(found.work.kernel())}" for found in team.run(works) if found.is_finding]


def sample(target: str) -> list[Work]:
    """The kernels of a target's test."""
    chosen: list[Work] = []
    for place in (0, 1):
        seeds = (
            seed for seed in itertools.count(FIRST) if (families.family_of(seed) in families.STRAIGHT) == (place == 0)
        )
        counts = {name: counts[place] for name, counts in SAMPLE.items()}
        before = sum(counts[name] for name in list(SAMPLE)[: list(SAMPLE).index(target)])
        chosen += [Work(seed, target) for seed in itertools.islice(seeds, before, before + counts[target])]
    return chosen


@pytest.mark.parametrize("target", SAMPLE)
def test_random_kernels_are_those_of_numpy(target):
    assert findings(sample(target)) == []


@pytest.mark.gpu
def test_random_kernels_on_a_gpu(torch):
    assert findings((Work(FIRST + number, "cuda") for number in range(GPU_SAMPLE)), GPU_PROCESSES) == []


#: What makes a kernel wrong, and what it is put in place of.
IN_TEXT = {
    "no mask": ("mask=", "mask=True | "),
    "the smallest for the largest": ("tl.max(", "tl.min("),
    "a scan from the other end": ("reverse=True", "reverse=False"),
    "falling for rising": ("descending=False", "descending=True"),
    "a number for its bits": ("bitcast=True", "bitcast=False"),
    "the other branch": ("pid % 2 == 0", "pid % 2 == 1"),
}
#: The same for the code that the CPU target makes.
IN_CODE = {
    "shifts without a sign": (" ashr ", " lshr "),
    "remainders for quotients": (" sdiv ", " srem "),
    "bits that are kept for those that differ": (" xor ", " and "),
    "extrema without a sign": (".smax.", ".umax."),
}


def straight(sign: str = "", seeds: Iterable[int] = range(400)) -> Iterator[int]:
    """Seeds of kernels without products whose text has a sign."""
    for seed in seeds:
        if families.family_of(seed) not in families.STRAIGHT:
            continue
        if sign in rendering.text_of(families.make(seed))[len(rendering.HEADER) :]:
            yield seed


def is_noticed(seeds: Iterator[int]) -> bool:
    """Whether one of some kernels is found to be wrong."""
    return any(check(Work(seed, "cpu")).kind == "wrong" for seed in itertools.islice(seeds, 40))


@pytest.fixture
def own_cache(monkeypatch, tmp_path):
    """What broken compilers make stays here."""
    monkeypatch.setenv("DEUTERON_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("mistake", IN_TEXT)
def test_a_wrong_kernel_is_noticed(mistake, monkeypatch):
    old, new = IN_TEXT[mistake]
    text, begin = rendering.text_of, len(rendering.HEADER)
    monkeypatch.setattr(launching, "text_of", lambda k: rendering.HEADER + text(k)[begin:].replace(old, new))
    assert is_noticed(straight(old))


def is_wrong_elsewhere(seed: int, seconds: float = 20) -> bool:
    """Whether a kernel is found to be wrong by a copy of this process, which may crash or hang: that says nothing."""
    copy = os.fork()
    if copy == 0:
        try:
            os._exit(0 if check(Work(seed, "cpu")).kind == "wrong" else 1)
        finally:
            os._exit(2)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(copy, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(0.005)
    os.kill(copy, signal.SIGKILL)
    os.waitpid(copy, 0)
    return False


@pytest.mark.parametrize("mistake", IN_CODE)
def test_a_wrong_compiler_is_noticed(mistake, monkeypatch, own_cache):
    """By one of some kernels without loops, which might not end."""
    old, new = IN_CODE[mistake]
    emit = cpu.emit_object
    monkeypatch.setattr(cpu, "emit_object", lambda made: emit(replace(made, llvm=made.llvm.replace(old, new))))
    loops = re.compile(r"^ +(for|while) ", re.MULTILINE)
    seeds = (seed for seed in straight() if not loops.search(rendering.text_of(families.make(seed))))
    assert any(map(is_wrong_elsewhere, itertools.islice(seeds, 40)))


def test_a_store_outside_of_its_array_is_noticed(monkeypatch):
    text = rendering.text_of
    monkeypatch.setattr(launching, "text_of", lambda k: text(k).replace("tl.store(o0 + ", "tl.store(o0 - 1 + "))
    found = [check(Work(seed, "cpu")) for seed in itertools.islice(straight("tl.store(o0 + tl.arange("), 6)]
    assert any("outside of the array" in outcome.what for outcome in found)


# What kernels are ---------------------------------------------------------------------------------------------


def test_a_seed_is_one_kernel():
    for seed in range(5):
        one, other = families.make(seed), families.make(seed)
        assert rendering.text_of(one) == rendering.text_of(other)
        assert (one.options, one.numbers) == (other.options, other.numbers)
        for name, contents in one.expected().items():
            np.testing.assert_array_equal(contents.values, other.expected()[name].values)


def test_kernels_use_every_operation():
    others = {
        family: [seed for seed in range(80) if families.family_of(seed) == family] for family in families.FAMILIES
    }
    seeds = [*straight(), *(seed for family in ("products", "scaled") for seed in others[family][:3])]
    text = "".join(rendering.text_of(families.make(seed, assembly=True)) for seed in seeds)
    names = """load store where minimum maximum abs ceil reshape permute trans broadcast_to expand_dims join
        interleave cat split flip ravel sort topk gather histogram sum max min argmax argmin xor_sum reduce cumsum
        cumprod associative_scan dot dot_scaled make_block_ptr advance make_tensor_descriptor atomic_add atomic_cas
        atomic_xchg inline_asm_elementwise static_range cast cdiv fma clamp debug_barrier"""
    assert [name for name in names.split() if f"tl.{name}(" not in text] == []
    assert [word for word in ("while", "break", "continue", "return", "else:") if f"    {word}" not in text] == []
    assert [kind.name for kind in (*kinds.STORED, kinds.I1) if f".to({kind.spelled})" not in text] == []


@pytest.mark.parametrize("kind", kinds.FLOATS[:3] + kinds.EIGHT_BITS)
def test_numbers_are_rounded_as_numpy_does(kind):
    values = np.random.default_rng(0).standard_normal(2000) * np.exp2(np.arange(2000) % 12 - 8)
    np.testing.assert_array_equal(bounds.rounded(values, kind), kinds.decoded(kinds.encoded(values, kind), kind))
    assert kind.most == float(ml_dtypes.finfo(kind.memory).max) or kind.most == 3e38


def test_errors_are_those_of_the_last_bit():
    third = bounds.result(np.array([1 / 3, 0.5]), None, kinds.F32)
    np.testing.assert_array_equal(third.slack, [2.0**-25, 0])
    assert bounds.summed(bounds.Known(np.ones((1, 8))), kinds.F16, lambda d: d.sum(1), 8).exact
    assert not bounds.summed(bounds.Known(np.full((1, 8), 0.1)), kinds.F32, lambda d: d.sum(1), 8).exact
    with pytest.raises(bounds.Reject, match="overflow"):
        bounds.result(np.array([1e6]), None, kinds.F16)


# What becomes of findings -------------------------------------------------------------------------------------


def test_a_kernel_without_a_statement_is_a_kernel():
    for seed in itertools.islice(straight("for "), 2):
        body = families.make(seed).body
        count = sum(1 for _ in shrinking.numbered(body))
        assert list(shrinking.numbered(shrinking.without(body, set()))) != [] or count == 0
        for number in range(0, count, 5):
            with contextlib.suppress(bounds.Discard, bounds.Reject):  # a loop that does not end, an error that is large
                outcome = check(Work(seed, "cpu", (number,)))
                assert not outcome.is_finding, f"{number}: {outcome}"


def test_what_fails_is_made_smaller():
    seed = next(straight("tl.sort("))
    body = families.make(seed).body

    def text(left_out: tuple[int, ...]) -> str:
        return rendering.text_of(Work(seed, "cpu", left_out).kernel())[len(rendering.HEADER) :]

    left_out = shrinking.shrink(body, lambda out: "tl.sort(" in text(out), 100)
    small = text(left_out)
    assert "tl.sort(" in small
    assert "tl.store(" not in small
    assert len(small.splitlines()) < len(text(()).splitlines()) / 2


@pytest.mark.parametrize(("old", "new", "said"), [("", "", "good"), ("tl.store(o0", "tl.store(1 + o0", "WRONG")])
def test_a_script_runs_by_itself(old, new, said, tmp_path):
    seed = next(straight("tl.store(o0 + tl.arange(0, 16)"))
    script = rendering.script_of(families.make(seed), "cpu", "wrong: this and\nthat")
    path = tmp_path / "script.py"
    path.write_text(script.replace(old, new))
    run = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert f"o0 {said}" in run.stdout
    assert ("WRONG" in run.stdout) == (said == "WRONG")
    assert "# wrong: this and\n# that\n" in script


def outcome_of(child: Child) -> Outcome:
    end = time.monotonic() + 100
    while (outcome := child.outcome()) is None and time.monotonic() < end:
        time.sleep(0.02)
    assert outcome is not None
    return outcome


def test_a_process_that_dies_or_hangs_is_a_finding(monkeypatch):
    child = Child(seconds=100)
    try:
        assert child.give(Work(0, "cpu"))
        os.kill(child.process.pid, signal.SIGKILL)
        outcome = outcome_of(child)
        assert (outcome.kind, outcome.what) == ("crashed", "the process ended with status -9")
    finally:
        child.end()
    monkeypatch.setattr(children, "START_SECONDS", 0)
    with Team(1, seconds=0) as team:
        assert [outcome.kind for outcome in team.run([Work(0, "cpu"), Work(1, "cpu")])] == ["hangs", "hangs"]


def test_the_command(monkeypatch, tmp_path, capsys):
    assert kernels.main(["--programs", "2", "--jobs", "1", "--out", str(tmp_path)]) == 0
    assert "2 kernels on cpu, seeds 0 to 1" in capsys.readouterr().out
    monkeypatch.setattr(Team, "run", lambda self, works: (Outcome(work, "wrong", f"o{work.seed}: 3") for work in works))
    assert kernels.main(["--programs", "3", "--seed", "5", "--jobs", "1", "--no-shrink", "--out", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "3 wrong" in out and "3 findings" in out
    assert [path.name for path in tmp_path.iterdir()] == ["cpu-5.py"]
    assert "# wrong: o5: 3\n" in (tmp_path / "cpu-5.py").read_text()
