"""Every mistake of the corpus is found at its line, and nothing else; the twins without it are clean."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deuteron.compiler.sanitizer import FindingKind, Report, sanitized

sys.path.insert(0, str(Path(__file__).parent))
from corpus_files import FaultyKernel, corpus, table  # type: ignore[import-not-found]  # noqa: E402

CASES = corpus()
PAGE = Path(__file__).parents[2] / "docs" / "sanitizer.md"


def run(case: FaultyKernel, which: str) -> Report:
    with sanitized() as report:
        case.module.launch(getattr(case.module, which))
    assert report.launches >= 1
    return report


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_mistake_is_found_where_it_is(case: FaultyKernel) -> None:
    report = run(case, "faulty")
    found = {(str(f.kind), f.array): f for f in report.findings}
    assert set(found) == set(case.expected), "\n".join(map(str, report.findings))
    for finding in report.findings:
        where = finding.place.location
        assert where is not None
        assert where.file == str(case.path)
        assert finding.place.line == case.path.read_text().splitlines()[where.line - 1]
        assert finding.count >= 1
        ends = {where.line}
        if finding.kind is FindingKind.RACE and finding.other is not None:
            ends.add(finding.other.location.line)
        assert ends & case.expected[str(finding.kind), finding.array], str(finding)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_twin_is_clean(case: FaultyKernel) -> None:
    assert not run(case, "right").findings


def test_the_corpus_is_large_and_covers_all_kinds() -> None:
    assert len(CASES) >= 60
    kinds = {kind for case in CASES for kind, _ in case.expected}
    assert len(kinds) == 6
    areas = {case.description.partition(":")[0] for case in CASES}
    wanted = "matmul softmax norms scans atomics loops masks descriptors views"
    assert areas >= {*wanted.split(), "block pointers", "never written"}


def test_the_table_in_the_documentation_is_that_of_the_corpus() -> None:
    assert table() in PAGE.read_text(), "python tests/sanitizer/corpus_files.py"
