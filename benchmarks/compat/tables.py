"""docs/compatibility.md from what triton_suite.py measured.

python benchmarks/compat/tables.py RESULT.json ... > docs/compatibility.md

Results of library_suite.py become a section of their own.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CAUSES = tomllib.loads((HERE / "causes.toml").read_text())["cause"]

HEAD = """# Compatibility with Triton

Triton's own tests (github.com/triton-lang/triton-cpu, `python/test/unit`) with deuteron under Triton's name, one
process a file, one test at a time:

```
python benchmarks/compat/triton_suite.py --checkout FOLDER --target cpu --sample 8 --out cpu.json
python benchmarks/compat/tables.py cpu.json interpreter.json LIBRARY.json ... > docs/compatibility.md
```

This page is what the second command writes. **Decided** are the cases that ran and were not skipped by the test itself;
a time-out and a crash count as failed. Of test functions with many parameters a sample is run, chosen by a seed. *By
function* weighs each function by the number of its cases, so it estimates what the whole suite would give. *In Triton's
own selection* counts only cases that Triton itself runs there: those that it marks for its CPU backend, or for its
interpreter. Files that a run did not come to are not in its tables; `benchmarks/results/README.md` says which.
"""

#: What suite_plugin.py says of cases that it ends where they ask for a text.
ENDED_EARLY = "after all else passed"

LIBRARIES = """\
The tests of the libraries themselves, by `library_suite.py`: of each test function the smallest case, by the product of
the whole numbers among its parameters, and of autotuned kernels one configuration. **Decided** are the cases that ran
and were not skipped; a time-out counts as failed. The run of
attorch, and that of conch with the four smallest cases, are the first there were, before anything that they show was
mended; an earlier one of flash-linear-attention had led to casts with a rounding mode being mended.
"""


def main() -> int:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=Path)
    given = [json.loads(path.read_text()) for path in parser.parse_args().results]
    results = [result for result in given if "library" not in result]
    print(HEAD)
    print("\n".join(overview(results)))
    if found := [result for result in given if "library" in result]:
        print("\n".join(["", "## Tests of libraries, on the CPU", "", LIBRARIES, *libraries(found)]))
    for result in results:
        print("\n".join(["", f"## Files: {result['target']}", "", *files(result)]))
        print("\n".join(["", f"## What fails: {result['target']}", "", *failures(result)]))
    print("\n".join(["", "## What is left out", "", *left_out(results)]))
    print("\n".join(["", "## Stand-ins", "", *stand_ins(results)]))
    return 0


def cases(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All cases of a run that were decided."""
    return (case for file in result["files"] for case in file["cases"] if case["outcome"] != "skipped")


def passed(some: Iterable[dict[str, Any]]) -> tuple[int, int]:
    """How many of them passed, and how many there are."""
    outcomes = [case["outcome"] == "passed" for case in some]
    return sum(outcomes), len(outcomes)


def share(good: float, count: float) -> str:
    """``good`` of ``count`` in per cent, not rounded up."""
    return f"{int(1000 * good / count) / 10:.1f} %" if count else "-"


def weighed(result: dict[str, Any]) -> tuple[float, float]:
    """Cases that pass, and cases, where each sampled case stands for its share of the function's."""
    good = count = 0.0
    for file in result["files"]:
        by_function = defaultdict(list)
        for case in file["cases"]:
            by_function[case["name"].partition("[")[0]].append(case)
        for function, sampled in by_function.items():
            decided = [case for case in sampled if case["outcome"] != "skipped"]
            weight = file["collected"].get(function, len(sampled)) / len(sampled)
            good += weight * passed(decided)[0]
            count += weight * len(decided)
    return good, count


def overview(results: list[dict[str, Any]]) -> list[str]:
    """The table of the runs."""
    lines = [
        "| target | decided | pass | by function | in Triton's own selection | sample | seed |",
        "|---|---|---|---|---|---|---|",
    ]
    for result in results:
        good, count = passed(cases(result))
        mine, marked = passed(case for case in cases(result) if result["target"] in case.get("marks", ()))
        sample = f"{result['sample']} a function" if result["sample"] else "all"
        lines.append(
            f"| {result['target']} | {count} | {share(good, count)} | {share(*weighed(result))} "
            f"| {share(mine, marked)} of {marked} | {sample} | {result['seed']} |"
        )
    return lines


def libraries(results: list[dict[str, Any]]) -> list[str]:
    """A row for each library: what passes, and why the rest fails."""
    lines = [
        "| library | commit | files | decided | pass | skipped | limit | fail |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        good, count = passed(cases(result))
        skipped = sum(len(file["cases"]) for file in result["files"]) - count
        reasons = Counter(cause(case) for case in cases(result) if case["outcome"] != "passed")
        text = "; ".join(f"{number} {reason}" for reason, number in reasons.most_common())
        lines.append(
            f"| {result['library']} | {result['library_revision'][:10]} | {len(result['files'])} | {count} | {good} "
            f"| {skipped} | {result['limit_s']:g} s | {text} |"
        )
    return lines


def files(result: dict[str, Any]) -> list[str]:
    """A row for each file."""
    lines = ["| file | decided | pass | skipped | fail |", "|---|---|---|---|---|"]
    for file in result["files"]:
        good, count = passed(case for case in file["cases"] if case["outcome"] != "skipped")
        reasons = Counter(cause(case) for case in file["cases"] if case["outcome"] not in ("passed", "skipped"))
        text = "; ".join(f"{number} {reason}" for reason, number in reasons.most_common())
        if file["import_error"]:
            text = f"cannot be imported: {file['import_error'][:120]}"
        if file["out_of_time"]:
            text += " (stopped: out of time)"
        lines.append(f"| {file['path']} | {count} | {good} | {len(file['cases']) - count} | {text} |")
    return lines


def failures(result: dict[str, Any]) -> list[str]:
    """The causes of failures with the functions that they stop, most frequent first."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for case in cases(result):
        if case["outcome"] != "passed":
            found[cause(case)][case["name"].partition("[")[0].partition("::")[2]] += 1
    lines = ["| cause | cases | test functions |", "|---|---|---|"]
    for reason, functions in sorted(found.items(), key=lambda item: -item[1].total()):
        named = ", ".join(f"{name} ({count})" if count > 1 else name for name, count in functions.most_common(8))
        more = f" and {len(functions) - 8} more" if len(functions) > 8 else ""
        lines.append(f"| {reason} | {functions.total()} | {named}{more} |")
    return lines


def cause(case: dict[str, Any]) -> str:
    """Why a case fails, in the words of causes.toml, else in those of the error."""
    said = f"{case['outcome']} {case['error']}: {case['message']}"
    for known in CAUSES:
        if re.search(known["pattern"], f"{case['name']} {said}", re.DOTALL):
            return str(known["cause"])
    first = case["message"].strip().splitlines()
    text = re.sub(r"\S*/(\w+\.py)", r"\1", f"{case['error'] or case['outcome']}: {first[0] if first else ''}")
    return text[:140].replace("|", "\\|").replace("<", "&lt;")


def left_out(results: list[dict[str, Any]]) -> list[str]:
    """Every reason with its files and functions, those of one target among them; and how many cases ended early."""
    by_reason: dict[str, dict[str, None]] = defaultdict(dict)
    for result in results:
        for test, reason in result["left_out"].items():
            by_reason[reason][test] = None
    lines = [f"- **{reason}**: {', '.join(f'`{test}`' for test in tests)}" for reason, tests in by_reason.items()]
    for group in tomllib.loads((HERE / "left_out.toml").read_text())["group"]:
        if "text" in group:
            lines.append(f"- {group['reason']} (the cases end there): {', '.join(f'`{t}`' for t in group['tests'])}")
    early = Counter(
        (result["target"], case["message"].removeprefix("Skipped: "))
        for result in results
        for file in result["files"]
        for case in file["cases"]
        if case["outcome"] == "skipped" and ENDED_EARLY in case["message"]
    )
    lines += [f"- {target}: {count} cases count as skipped; each {why}" for (target, why), count in early.items()]
    return lines


def stand_ins(results: list[dict[str, Any]]) -> list[str]:
    """The names that were supplied for the files to be importable."""
    names = sorted({name for result in results for file in result["files"] for name in file["stand_ins"]})
    text = "A test file is one module: without every name that it imports none of its cases could run. These had to be "
    text += "supplied, most of them empty, so that a case which uses them fails: "
    return [text + (", ".join(f"`{name}`" for name in names) or "none") + "."]


if __name__ == "__main__":
    sys.exit(main())
