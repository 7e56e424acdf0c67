"""``deuteron tune``: a search on this machine, without a service."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from .grouped import with_options
from .inferred_job import with_space_of_kernel
from .job_options import JobOptions, KernelOptions, save_workload
from .output import print_records, say
from .settings import token_for
from .signatures import AllowUnsigned, bundle_reader

if TYPE_CHECKING:
    from deuteron.tuner import JobSpec
    from deuteron.tuner.experience import SearchLog
    from deuteron.tuner.local import LocalResult


@with_options
def tune(
    options: JobOptions,
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for journal, bundle, picture and profile. Default: in DEUTERON_HOME."),
    ] = None,
    kernel: KernelOptions,
    earlier: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="SOURCE",
            help="Start from earlier searches of the kernel: a folder or journal of `deuteron tune`, a bundle, the "
            "http:// address of a service, results of Triton's @autotune, files of vLLM or SGLang. May be repeated.",
        ),
    ] = None,
    allow_unsigned: AllowUnsigned = False,
    infer: Annotated[
        bool,
        typer.Option(
            "--infer-space", help="Search the space that `deuteron space` shows for the first shape and dtype."
        ),
    ] = False,
    save: Annotated[
        Path | None,
        typer.Option("--save-workload", help="Write the workload as JSON and do not tune."),
    ] = None,
) -> None:
    """Find the best configuration of a kernel on this machine.

    Every configuration is checked against a reference before it is timed. A search that was interrupted
    goes on where it stopped when the same command is given again; to measure anew, name another --out, or
    delete the journal.jsonl in its folder. Where some shapes cannot be tuned the
    others are, their configurations are in the bundle, and the exit code is 1.

    Each shape starts from what the ones before it measured, with --from also from earlier searches: other
    shapes, dtypes, devices, and older texts of the kernel.

    Example: `deuteron tune matmul --shape M=512,N=512,K=512 --dtype f32 --device cpu --seconds 60`

    A kernel of your own: `deuteron tune examples/vector_add.py:add_kernel --shape n_elements=1048576`
    """
    job = options.job(kernel)
    if infer:
        job = with_space_of_kernel(job, options.workload, kernel)
    if save is not None:
        save_workload(job.workload, save, job.shapes, job.dtypes)
        typer.echo(f"workload: {save}")
        return
    from deuteron.compiler import get_device  # lazy: help starts without the compiler
    from deuteron.tuner.journal import FILE_NAME as JOURNAL_NAME  # lazy: help starts without the tuner
    from deuteron.tuner.local import default_folder  # lazy: help starts without the tuner

    get_device(job.device)  # before the folder is made: a device that is not there leaves nothing behind
    known = _known(earlier or (), job, allow_unsigned=allow_unsigned)
    result = _search(job, out or default_folder(job), known)
    if result.resumed:
        say(f"{result.resumed} trials were taken over from an earlier run")
    print_records(result.records)
    typer.echo(f"journal  {result.folder / JOURNAL_NAME}")
    typer.echo(f"bundle   {result.bundle}")
    typer.echo(f"picture  {result.picture}")
    typer.echo(f"profile  {result.profile}   (proton-viewer -m time/us {quote(str(result.profile))})")


def _search(job: JobSpec, folder: Path, known: Sequence[SearchLog]) -> LocalResult:
    """Tune, with progress on stderr. Where some shapes fail, show what the others gave and exit with 1."""
    from deuteron.tuner import progress_view, tune_locally  # lazy: help starts without the tuner
    from deuteron.tuner.events import JobFailed, TuneEvent  # lazy: help starts without the tuner
    from deuteron.tuner.failures import ShapesFailed  # lazy: help starts without the tuner
    from deuteron.tuner.local import BUNDLE_NAME  # lazy: help starts without the tuner

    with progress_view(sys.stderr) as view:

        def emit(event: TuneEvent) -> None:
            if not isinstance(event, JobFailed):  # the error itself is said at the end, once
                view(event)

        try:
            return tune_locally(job, emit=emit, folder=folder, known=known)
        except ShapesFailed as error:
            failed = error
    if failed.records:
        print_records(failed.records)
        typer.echo(f"bundle   {folder / BUNDLE_NAME}")
    say(f"error: {failed}")
    raise typer.Exit(1)


def _known(sources: Sequence[str], job: JobSpec, *, allow_unsigned: bool) -> list[SearchLog]:
    """The searches of the kernel that the sources know; says where one knows none."""
    from deuteron.tuner.experience.sources import read_logs  # lazy: help starts without the tuner

    open_bundle = bundle_reader(allow_unsigned)
    known: list[SearchLog] = []
    for source in sources:
        name = job.workload.kernel.name
        token = token_for(source)
        found = read_logs(source, name, token=token, job=job, open_bundle=open_bundle, tell=say)
        if not found:
            say(f"{source} knows no search of {name}")
        elif not any(log.device.partition("/")[0] == job.device.partition(":")[0] for log in found):
            devices = ", ".join(dict.fromkeys(log.device for log in found))
            say(f"{source} knows {name} on {devices} alone, which says nothing of {job.device}")
        known += found
    return known
