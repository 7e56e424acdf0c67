"""``deuteron learn``: what predicts configurations for shapes that nobody tuned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deuteron.compiler.counting import counted

from .errors import CommandError
from .grouped import with_options
from .job_options import KernelOptions, Sources, Workload, read_workload
from .output import print_predictors, say, tell
from .settings import token_for
from .signatures import AllowUnsigned, bundle_reader

if TYPE_CHECKING:
    from deuteron.tuner.learn import SearchGroup
    from deuteron.tuner.records import Bundle, ConfigRecord
    from deuteron.tuner.workloads import WorkloadSpec


@with_options
def learn(
    workload: Workload,
    *,
    sources: Sources = None,
    shape: Annotated[
        str | None,
        typer.Option(metavar="M=512,N=512", help="FILE:KERNEL: what its sizes are called, with values of any shape."),
    ] = None,
    kernel: KernelOptions,
    allow_unsigned: AllowUnsigned = False,
    output: Annotated[Path, typer.Option("--out", "-o", metavar="BUNDLE", help="The bundle to write.")] = Path(
        "learned.bundle"
    ),
    dtype: Annotated[str | None, typer.Option(help="Only searches in this dtype. Default: each.")] = None,
    device: Annotated[str | None, typer.Option(help="Only searches on this device (its key). Default: each.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="A line for each shape that is left out.")] = False,
) -> None:
    """Learn which configurations are fast at shapes that were not tuned, from the trials of those that were.

    For each device, dtype and toolchain trees are trained on times of all shapes and checked by leaving out one
    shape after the other. They go into a bundle, with the records of the sources; lookups ask them where
    there is no exact record, if they did better than the nearest shape.

    Example: `deuteron learn matmul --from runs --out configs.bundle`

    A kernel of your own takes the options with which it was tuned:
    `deuteron learn examples/vector_add.py:add_kernel --shape n_elements=1048576 --from runs`
    """
    from deuteron.tuner.job import parse_shape  # lazy: help starts without the tuner
    from deuteron.tuner.learn import LearnError  # lazy: as above
    from deuteron.tuner.learn import learn as train  # lazy: as above
    from deuteron.tuner.records import write_bundle  # lazy: as above

    if not sources:
        raise CommandError("nothing says where trials are", hint="--from FOLDER, a journal, a bundle or a service")
    dims = () if shape is None else tuple(parse_shape(shape))
    spec = read_workload(workload, dims=dims, kernel=kernel)
    open_bundle = bundle_reader(allow_unsigned)
    groups = _groups(spec, sources, dtype, device, open_bundle)
    predictors = []
    for group in groups:
        say(f"{group}: {group.shapes} shapes")
        try:
            predictors.append(train(group, spec, say if verbose else _silent))
        except LearnError as error:
            if len(groups) == 1:
                raise
            say(f"{group}: nothing is learnt: {error.message}")
    records = _records(sources, spec, open_bundle)
    write_bundle(output, records, predictors=predictors)
    print_predictors(predictors)
    for predictor in predictors:
        if not predictor.accuracy.pays:
            tell(
                f"{predictor.dtype} on {predictor.device.key}: predicting was no better than the nearest shape or the "
                "default: lookups will not use it"
            )
    tell(f"{output}: {counted(len(predictors), 'predictor')} and {counted(len(records), 'configuration')}")


def _silent(line: str) -> None:
    pass


def _groups(
    spec: WorkloadSpec,
    sources: Sequence[str],
    dtype: str | None,
    device: str | None,
    open_bundle: Callable[[Path], Bundle],
) -> list[SearchGroup]:
    """The searches that something can be learnt from. Raises CommandError where there is none, and says why."""
    from deuteron.tuner.experience.sources import read_logs  # lazy: help starts without the tuner
    from deuteron.tuner.learn import LEAST_SHAPES, groups_of_logs, kernel_hash_of  # lazy: as above

    read = partial(read_logs, kernel_name=spec.kernel.name, open_bundle=open_bundle)
    logs = [log for source in sources for log in read(source, token=token_for(source))]
    found = groups_of_logs(logs, kernel_hash_of(spec))
    chosen = [group for group in found if dtype in (None, group.dtype) and device in (None, group.device.key)]
    large = [group for group in chosen if group.shapes >= LEAST_SHAPES]
    for group in chosen:
        if group not in large:
            say(f"{group}: {group.shapes} shapes are too few; at least {LEAST_SHAPES} are needed")
    if large:
        return large
    where = ", ".join(sources)
    if chosen:
        raise CommandError(f"too few shapes of {spec.kernel.name!r} are in {where}", hint="tune more of them")
    if found:
        known = ", ".join(str(group) for group in found)
        raise CommandError(f"no search of {spec.kernel.name!r} is of that dtype and device", hint=f"known: {known}")
    if logs:
        raise CommandError(
            f"the searches of {spec.kernel.name!r} in {where} are of another text of it",
            hint="give the workload that was tuned; a journal is of use once a shape in it is finished",
        )
    raise CommandError(f"no search of {spec.kernel.name!r} is in {where}", hint="folders of `deuteron tune`")


def _records(sources: Sequence[str], spec: WorkloadSpec, open_bundle: Callable[[Path], Bundle]) -> list[ConfigRecord]:
    """Those of the kernel in the sources; of several under one key the newest."""
    from deuteron.tuner.experience.sources import read_records  # lazy: help starts without the tuner
    from deuteron.tuner.learn import kernel_hash_of  # lazy: as above

    kernel_hash = kernel_hash_of(spec)
    found: dict[tuple[str, ...], ConfigRecord] = {}
    for source in sources:
        for record in read_records(source, open_bundle=open_bundle):
            held = found.get(record.key)
            if record.kernel_hash == kernel_hash and (held is None or held.created_at < record.created_at):
                found[record.key] = record
    return list(found.values())
