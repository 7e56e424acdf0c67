"""What predicting configurations is worth: each shape is left out in turn and chosen for by what the others say.

python benchmarks/prediction.py SOURCE ... [--workload matmul] [--modelled] [--out FILE] [--bundle FILE]

SOURCE: a folder of `deuteron tune`, a journal, a bundle, or a JSON file of searches (gpu_table.py). One comparison for
each kernel, device and dtype: the time of the best configuration over that of the one chosen by trees that were grown
without the shape, by the nearest other shape, and by default: geometric mean, tenth percentile, worst. A workload (by
default the built-in one whose kernel it is) says which configurations are legal and how many programs a launch has;
without one the trees see products of quotients instead. --bundle: keep the predictors of workloads, and time lookups in
them: the first of a shape, and again. --modelled: products on a modelled GPU (development/modelled_products.py) in
place of sources, seen with the space of the built-in matmul and without.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deuteron.tuner.cover import CoverError, TimeTable, table_of_logs
from deuteron.tuner.errors import TunerError
from deuteron.tuner.experience import SearchLog
from deuteron.tuner.experience.sources import read_logs
from deuteron.tuner.learn import (
    HeldOut,
    RankedKernel,
    SearchGroup,
    cross_validate,
    groups_of_logs,
    kernel_hash_of,
    kernel_of_table,
    kernel_of_workload,
    learn,
    leave_one_out,
)
from deuteron.tuner.prediction import CrossValidation
from deuteron.tuner.records import DeviceFingerprint, Predictor, RecordIndex, lookup, write_bundle
from deuteron.tuner.space import Configuration
from deuteron.tuner.workloads import BUILTINS, WorkloadSpec, builtin_workload

sys.path.append(str(Path(__file__).resolve().parents[1] / "development"))
import modelled_products
from sources import environment

MODELLED_DEVICE = DeviceFingerprint("cuda", "H200", compute_capability=(9, 0), sm_count=modelled_products.SMS)


@dataclass(frozen=True)
class Case:
    """A table of one kernel, device and dtype, with what is known of the kernel and its default at each shape."""

    name: str
    table: TimeTable
    kernel: RankedKernel
    default: Callable[[int], Configuration | None]


def case_of(name: str, table: TimeTable, workload: WorkloadSpec | None, dtype: str, device: DeviceFingerprint) -> Case:
    """With what a workload says, or with what the table alone tells."""
    if workload is None:
        return Case(name, table, kernel_of_table(table), lambda place: None)
    kernel = kernel_of_workload(workload, table.shapes[0], dtype, device)
    usual = workload.default_for(device.kind)
    return Case(name, table, kernel, lambda place: kernel.space.bind(table.shapes[place]).nearest(usual))


def modelled() -> Iterator[Case]:
    """63 products with 40 configurations, three draws of them, with the built-in space and without."""
    for seed in range(3):
        table = modelled_products.table(seed=seed, noise=0.02)
        constant = [{**config, "persistent": False} for config in table.configs]
        with_space = TimeTable(table.shapes, tuple(constant), table.times, table.weights)
        yield case_of(f"modelled {seed}", with_space, builtin_workload("matmul"), "f16", MODELLED_DEVICE)
        yield case_of(f"modelled {seed}, table alone", table, None, "f16", MODELLED_DEVICE)


def kernels_in(sources: Sequence[str]) -> list[SearchLog]:
    """All searches of the JSON files, and of others those of the built-in kernels."""
    found = []
    for source in sources:
        path = Path(source)
        named = {builtin_workload(name).kernel.name for name in BUILTINS}
        if path.suffix == ".json":
            named |= {one["kernel_name"] for one in json.loads(path.read_text())["searches"]}
        found += [log for name in sorted(named) for log in read_logs(source, name)]
    return found


def groups(logs: Sequence[SearchLog], given: str | None) -> Iterator[tuple[str, SearchGroup, WorkloadSpec | None]]:
    """The searches that belong together, with the workload of their kernel where it is known."""
    specs = {kernel_hash_of(spec): spec for spec in map(builtin_workload, [given] if given else BUILTINS)}
    for kernel_hash in dict.fromkeys(log.kernel_hash for log in logs):
        for group in groups_of_logs(logs, kernel_hash):
            yield f"{group.logs[0].kernel_name} {group}", group, specs.get(kernel_hash)


def show(case: Case, validated: CrossValidation, seconds: float) -> None:
    """A line for each way to choose."""
    pairs = sum(len(row) for row in case.table.times)
    print(f"{case.name}: {validated.shapes} of {len(case.table.shapes)} shapes, {pairs} times, {seconds:.0f} s")
    ways = (("predicted", validated.predicted), ("nearest", validated.nearest), ("default", validated.default))
    for name, accuracy in ways:
        if accuracy is not None:
            print(f"  {name:10} {accuracy}")
    print(f"  not measured where it was chosen: {validated.unmeasured:.0%} of the predicted", flush=True)
    print(f"  no configuration known to be right: at {validated.unanswered:.0%} of all shapes", flush=True)


def lookup_seconds(predictor: Predictor) -> dict[str, float]:
    """Microseconds of lookups in process: the first of a shape that was not tuned, and of one that was asked for
    before; medians."""
    index = RecordIndex((), [predictor])
    asked = [{name: max(size - 1, 1) for name, size in shape.items()} for shape in predictor.shapes]
    found: dict[str, list[float]] = {"first": [], "again": []}
    for kind in found:
        for shape in asked:
            begin = time.perf_counter_ns()
            answer = lookup(
                index, predictor.kernel_hash, predictor.device, shape, predictor.dtype, toolchain=predictor.toolchain
            )
            found[kind].append((time.perf_counter_ns() - begin) / 1e3)
            if answer.match != "predicted" and predictor.accuracy.pays:
                print(f"  {shape}: {answer.match}: {answer.reason}")
    return {kind: statistics.median(times) for kind, times in found.items()}


def entry(case: Case, left_out: Sequence[HeldOut], validated: CrossValidation) -> dict[str, object]:
    """What the file says of a case."""
    shapes = [
        {
            "shape": dict(case.table.shapes[one.shape]),
            **{w: getattr(one, w) for w in ("predicted", "nearest", "default")},
        }
        for one in left_out
    ]
    return {"case": case.name, "validated": validated.to_json(), "shapes": shapes}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sources", nargs="*", metavar="SOURCE")
    parser.add_argument("--workload", choices=tuple(BUILTINS), help="only the kernel of this one")
    parser.add_argument("--modelled", action="store_true", help="products on a modelled GPU")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write all fractions as JSON")
    parser.add_argument("--bundle", type=Path, metavar="FILE", help="write the predictors, and time lookups")
    options = parser.parse_args()
    entries, predictors = [], []
    cases = list(modelled()) if options.modelled else []
    for name, group, workload in groups(kernels_in(options.sources), options.workload):
        try:
            cases.append(case_of(name, table_of_logs(group.logs), workload, group.dtype, group.device))
            if options.bundle and workload is not None:
                predictors.append(learn(group, workload))
        except (CoverError, TunerError) as error:
            print(f"{name}: {error}")
    for case in cases:
        begin = time.monotonic()
        left_out = list(leave_one_out(case.table, case.kernel, case.default))
        validated = cross_validate(left_out)
        show(case, validated, time.monotonic() - begin)
        entries.append(entry(case, left_out, validated))
    for predictor in predictors:
        times = lookup_seconds(predictor)
        name = f"{predictor.kernel_name} {predictor.dtype}"
        print(f"{name}: a lookup takes {times['first']:.0f} us, again {times['again']:.1f} us")
    if options.bundle:
        write_bundle(options.bundle, [], predictors=predictors)
    if options.out:
        options.out.write_text(json.dumps({"environment": environment(), "cases": entries}, indent=1) + "\n")


if __name__ == "__main__":
    main()
