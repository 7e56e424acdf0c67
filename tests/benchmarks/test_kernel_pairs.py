"""The kernels that are timed under deuteron and under Triton: all have launches, and they compile without a GPU."""

from __future__ import annotations

import sys

import kernel_pairs
import pytest
from kernel_pairs import Pair, choose, detail, summary
from pairs import FAMILIES, cases_of
from pairs.arrays import Nowhere, signature_of
from timing import Timing

import deuteron
import deuteron.language
from deuteron.compiler import JITFunction


def timed(name: str, deuteron_us: float, triton_us: float) -> Pair:
    return Pair(name, "scans", {"deuteron": Timing(deuteron_us, 0.0, 30), "triton": Timing(triton_us, 0.0, 30)})


def test_names_are_unique_and_every_kernel_has_a_case():
    cases = [case for family in FAMILIES for case in cases_of(family, "deuteron")]
    names = [case.name for case in cases]
    assert len(set(names)) == len(names) and not set(names) & set(FAMILIES)
    for family in FAMILIES:
        launched = {case.kernel.__name__: case.kernel for case in cases_of(family, "deuteron")}
        module = sys.modules[next(iter(launched.values())).fn.__module__]
        kernels = {name for name, value in vars(module).items() if isinstance(value, JITFunction)}
        assert {name for name in kernels if not name.startswith("_")} == set(launched)
    folder = {path.stem for path in kernel_pairs.Path(kernel_pairs.__file__).parent.glob("pairs/*.py")}
    assert folder == {*FAMILIES, "__init__", "arrays", "case"}


def test_arguments_are_those_of_the_kernel_and_grids_have_programs():
    for family in FAMILIES:
        for case in cases_of(family, "deuteron"):
            arguments = case.arguments(Nowhere())
            assert {*arguments, *case.constants} == {p.name for p in case.kernel.parameters}, case.name
            assert all(size > 0 for size in case.grid(arguments | case.constants)), case.name


@pytest.mark.parametrize("family", FAMILIES)
def test_a_case_of_each_family_compiles_for_hopper(family: str):
    case = cases_of(family, "deuteron")[-1]
    signature = signature_of(case.arguments(Nowhere()))
    options = {"num_warps": case.num_warps, "num_stages": case.num_stages}
    made = deuteron.compile(case.kernel, signature=signature, constexprs=case.constants, target="cuda:90a", **options)
    assert case.kernel.__name__ in made.asm["ptx"]


def test_both_compilers_get_the_same_cases(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "triton", deuteron)
    monkeypatch.setitem(sys.modules, "triton.language", deuteron.language)
    for family in FAMILIES:
        ours, theirs = (cases_of(family, package) for package in ("deuteron", "triton"))
        assert [case.name for case in ours] == [case.name for case in theirs]
        assert all("_triton_" in case.kernel.fn.__module__ for case in theirs)


def test_cases_are_chosen_by_name_and_by_family():
    assert choose(["sort_rows", "cumsum_rows"]) == [("scans", "cumsum_rows"), ("selections", "sort_rows")]
    scans = [case.name for case in cases_of("scans", "deuteron")]
    assert choose(["scans"]) == [("scans", name) for name in scans]
    assert {family for family, _ in choose([])} == set(FAMILIES)
    with pytest.raises(ValueError, match="no case or family is called cumsum;"):
        choose(["cumsum"])


def test_lines_say_times_ratios_and_what_is_wrong():
    slow, fast = timed("slow", 20.0, 10.0), timed("fast", 10.0, 20.0)
    slow.difference = "array 1: error 0.5"
    failed = Pair("failed", "scans", failures={"triton": "OutOfResources: shared memory\nmore"})
    assert detail(slow).split() == ["slow", "20.0", "10.0", "0.500", "differs:", "array", "1:", "error", "0.5"]
    assert detail(failed).split(maxsplit=4) == ["failed", "-", "-", "-", "triton: OutOfResources: shared memory"]
    assert summary([slow, failed, fast], 4) == (
        "2 of 4 timed, 1 differ, 1 failed: geomean 1.000, least slow 0.50, fast 2.00"
    )
    assert summary([], 3) == "0 of 3 timed, 0 differ, 0 failed: geomean nan, least -"
