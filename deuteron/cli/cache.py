"""``deuteron cache``: bundles of best configurations, from a service and in files."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .errors import CommandError
from .export import WRITERS
from .lookup import from_bundle, from_service
from .output import print_records
from .settings import Server, connect

if TYPE_CHECKING:
    from deuteron.tuner import Bundle

app = typer.Typer(no_args_is_help=True, help="Download, show, query and export bundles of best configurations.")

BundleFile = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle file.")]


class ExportFormat(StrEnum):
    """What ``export`` writes."""

    JSON = "json"
    CSV = "csv"
    PYTHON = "python"


@app.command()
def pull(
    output: Annotated[Path, typer.Option("--output", "-o", help="File to bring up to date.")] = Path("configs.bundle"),
    kernel: Annotated[str | None, typer.Option(help="Only this kernel (its hash).")] = None,
    device: Annotated[str | None, typer.Option(help="Only this device (its key).")] = None,
    server: Server = None,
) -> None:
    """Download the newest bundle. A file that is current already is not sent again; a broken
    download goes on where it stopped; the file changes only when the new one is whole.

    Example: `deuteron cache pull -o configs.bundle --server http://tuner:8642`
    """
    from deuteron.tuner import read_bundle  # lazy: help starts without the tuner

    with connect(server) as client:
        found = client.pull_bundle(output, kernel=kernel, device=device)
    count = read_bundle(output).manifest.count
    state = "downloaded" if found.changed else "is current"
    typer.echo(f"{output}: {state}, {count} configurations, sha256 {found.sha256}")


@app.command()
def show(bundle: BundleFile) -> None:
    """Verify a bundle and list its configurations.

    Example: `deuteron cache show configs.bundle`
    """
    found = _read(bundle)
    manifest = found.manifest
    typer.echo(f"{bundle}: {manifest.count} configurations from {manifest.service}, {manifest.created_at}")
    print_records(found.records())


@app.command()
def lookup(
    kernel: Annotated[str, typer.Argument(metavar="KERNEL", help="Name or hash of a kernel, or FILE.py:KERNEL.")],
    shape: Annotated[str, typer.Option(metavar="M=512,N=512", help="The shape of the launch.")],
    dtype: Annotated[str, typer.Option(help="The dtype of the launch.")] = "f32",
    device: Annotated[
        str, typer.Option(help="cpu or cuda:0 of this machine; or, from a service, a key or name.")
    ] = "cpu",
    bundle: Annotated[Path | None, typer.Option(help="Look in this file, not in a service.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail unless the match is exact.")] = False,
    server: Server = None,
) -> None:
    """Ask which configuration a launch would get, and why.

    Example: `deuteron cache lookup softmax_kernel --shape M=1024,N=781 --bundle configs.bundle`
    """
    from deuteron.tuner.job import parse_shape  # lazy: help starts without the tuner

    sizes = parse_shape(shape)
    if bundle is not None:
        answer = from_bundle(_read(bundle), kernel, device, sizes, dtype, strict=strict)
    else:
        answer = from_service(server, kernel, device, sizes, dtype, strict=strict)
    typer.echo(f"match   {answer.match}")
    typer.echo(f"reason  {answer.reason}")
    typer.echo(f"config  {answer.config}")


@app.command()
def export(
    bundle: BundleFile,
    form: Annotated[
        ExportFormat,
        typer.Option(
            "--format",
            help="json: the records; csv: a table; python: Config(...) lists for @autotune.",
        ),
    ] = ExportFormat.JSON,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: stdout.")] = None,
) -> None:
    """Write the configurations of a bundle for other programs.

    Example: `deuteron cache export configs.bundle --format python`
    """
    found = _read(bundle)
    write = WRITERS[form.value]
    if output is None:
        write(found.records(), sys.stdout)
        return
    try:
        with output.open("w", encoding="utf-8", newline="") as file:
            write(found.records(), file)
    except OSError as error:
        raise CommandError(f"cannot write {output}: {error.strerror}") from None


def _read(path: Path) -> Bundle:
    from deuteron.tuner import read_bundle  # lazy: help starts without the tuner

    return read_bundle(path)
