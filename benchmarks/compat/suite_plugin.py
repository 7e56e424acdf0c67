"""A pytest plugin that runs Triton's tests with deuteron under Triton's name and keeps a journal of what came of each.

triton_suite.py and proton_suite.py start it. The journal has a line of JSON for each event, flushed at once, so that a
case that ends the process is known as the one that was begun and not finished.
"""

from __future__ import annotations

import json
import random
import signal
import tomllib
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
import simulated_launches
from names import put_in_place

from deuteron.compiler.runtime.launch.compiled import Stages

#: Stages of Triton's compiler whose text is Triton's alone; PTX and machine code are everybody's.
INSIDE = ("ttir", "ttgir", "llir", "amdgcn")
#: What a case is skipped with that ran right until it asked for one of them.
READS_INSIDE = "reads the text of Triton's own stages after all else passed"
READS_CODE = "looks for instructions that Triton chooses after all else passed"

#: Marks by which Triton's continuous integration chooses what to run on its CPU backend and in its interpreter.
MARKS = ("cpu", "interpreter")


class TookTooLong(Exception):
    """A case did not end within its time."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """What triton_suite.py or proton_suite.py says of a run."""
    group = parser.getgroup("suite")
    group.addoption("--suite-checkout", type=Path, help="triton-lang/triton-cpu, or what git archive gives of it")
    group.addoption("--suite-folder", default="python/test/unit", help="where in it the tests are")
    group.addoption("--suite-cuda-on-cpu", action="store_true", help="arrays of device cuda are made on the CPU")
    group.addoption("--suite-journal", type=Path, help="file that a line is added to for every event")
    group.addoption("--suite-left-out", type=Path, help="TOML: what is left out, and why")
    group.addoption("--suite-target", default="", help="whose tests are left out besides those of every target")
    group.addoption("--suite-sample", type=int, default=0, help="cases of a test function; 0: all")
    group.addoption("--suite-seed", type=int, default=0)
    group.addoption("--suite-limit", type=float, default=60.0, help="seconds for a case")
    simulated_launches.add_options(group, "--suite-")


def pytest_configure(config: pytest.Config) -> None:
    """Put the alias in place before any test is imported."""
    checkout: Path = config.getoption("--suite-checkout")
    journal = Journal(config.getoption("--suite-journal"))
    supplied = put_in_place(checkout)
    journal.write(event="begin", stand_ins=supplied)
    if config.getoption("--suite-cuda-on-cpu"):
        from cuda_on_cpu import CudaOnCpu  # PyTorch, which takes a second, before every test

        CudaOnCpu().__enter__()
    config.pluginmanager.register(Suite(config, journal, checkout), "suite")
    simulated_launches.begin(config, config.getoption("--suite-journal"))


def as_on_gpus(module: object) -> None:
    """Triton's CPU backend prints arrays as NumPy does; deuteron prints on every target what Triton prints on GPUs, so
    its lines are compared with those."""
    if getattr(module, "__name__", "").endswith("test_subprocess") and hasattr(module, "is_cpu"):
        module.is_cpu = lambda: False  # type: ignore[attr-defined]


@contextmanager
def ends_before(texts: Sequence[str]) -> Iterator[None]:
    """Skip what is left of a case when it asks for a stage that only Triton has, or for one of ``texts``."""
    theirs = Stages.__getitem__

    def stage(stages: Stages, name: str) -> object:
        if name in INSIDE:
            pytest.skip(READS_INSIDE)
        if name in texts:
            pytest.skip(READS_CODE)
        return theirs(stages, name)

    Stages.__getitem__ = stage  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Stages.__getitem__ = theirs  # type: ignore[method-assign]


def left_out(table: Path, target: str) -> dict[str, str]:
    """Files, functions and cases that are left out on a target, with their reasons."""
    groups = tomllib.loads(table.read_text())["group"]
    meant = (group for group in groups if target in group.get("targets", [target]) and "text" not in group)
    return {test: group["reason"] for group in meant for test in group["tests"]}


def texts_of(table: Path) -> dict[str, list[str]]:
    """The functions whose cases end where they ask for some of the texts of a compiled kernel, with these."""
    groups = tomllib.loads(table.read_text())["group"]
    return {test: group["text"] for group in groups if "text" in group for test in group["tests"]}


class Journal:
    """Lines of JSON, one an event."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, **event: object) -> None:
        """Add an event, and have it on the disk's side of this process."""
        with self.path.open("a") as file:
            file.write(json.dumps(event) + "\n")

    def decided(self) -> set[str]:
        """The cases that have an outcome already."""
        if not self.path.exists():
            return set()
        events = map(json.loads, self.path.read_text().splitlines())
        return {event["case"] for event in events if event["event"] == "outcome"}


class Suite:
    """Chooses the cases of a file and writes down what becomes of them."""

    #: Functions whose cases end before they read some of a compiled kernel's texts.
    texts: Mapping[str, Sequence[str]] = {}

    def __init__(self, config: pytest.Config, journal: Journal, checkout: Path) -> None:
        self.journal, self.tests = journal, checkout / config.getoption("--suite-folder")
        self.sample: int = config.getoption("--suite-sample")
        self.seed: int = config.getoption("--suite-seed")
        self.limit: float = config.getoption("--suite-limit")
        self.left_out = left_out(config.getoption("--suite-left-out"), config.getoption("--suite-target"))
        self.texts = texts_of(config.getoption("--suite-left-out"))

    def case(self, item: pytest.Item) -> str:
        """Its name, the same on every machine: ``language/test_core.py::test_cast[...]``."""
        return f"{item.path.relative_to(self.tests)}::{item.nodeid.partition('::')[2]}"

    def function(self, item: pytest.Item) -> str:
        """The case's name without its parameters."""
        return self.case(item).partition("[")[0]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out, sample by function, and pass over what an earlier process decided."""
        for module in {getattr(item, "module", None) for item in items}:
            as_on_gpus(module)
        decided, by_function = self.journal.decided(), defaultdict(list)
        for item in items:
            by_function[self.function(item)].append(item)
        chosen: set[str] = set()
        for function, cases in by_function.items():
            reason = self.left_out.get(function) or self.left_out.get(function.partition("::")[0])
            self.journal.write(event="collected", function=function, cases=len(cases), left_out=reason)
            if reason is None:
                wanted = [item for item in cases if self.case(item) not in self.left_out]
                count = min(self.sample or len(wanted), len(wanted))
                picks = random.Random(f"{self.seed} {function}").sample(wanted, count)
                chosen.update(item.nodeid for item in picks)
        items[:] = [item for item in items if item.nodeid in chosen and self.case(item) not in decided]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported."""
        if report.failed and report.nodeid:
            self.journal.write(event="import", error=_last_line(report.longreprtext), text=report.longreprtext[-2000:])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        marks = [mark for mark in MARKS if item.get_closest_marker(mark)]
        self.journal.write(event="begun", case=self.case(item), marks=marks)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        with alarm(self.limit), ends_before(self.texts.get(self.function(item), ())):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "call" or not report.passed:
            self.record(item, call, report)
        return report

    def record(self, item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
        """Write down an outcome. A failure has the error's class, message and the line of the test it came from."""
        outcome, error, message = report.outcome, "", ""
        if report.skipped:
            message = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
        elif report.failed and call.excinfo is not None:
            error = call.excinfo.typename
            message = str(call.excinfo.value)[:1500]
            if call.excinfo.errisinstance(TookTooLong):
                outcome = "timed out"
        self.journal.write(
            event="outcome", case=self.case(item), outcome=outcome, error=error, message=message,
            seconds=round(call.duration, 3),
        )  # fmt: skip


def _last_line(text: str) -> str:
    lines = [line.removeprefix("E").strip() for line in text.splitlines() if line.startswith("E ")]
    return lines[-1] if lines else text[-200:]


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raise :class:`TookTooLong` where Python is after so many seconds."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TookTooLong(f"no end within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
