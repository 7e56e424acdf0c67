"""``deuteron cache``: bundles of best configurations, from a service and in files."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from io import TextIOWrapper
from pathlib import Path, PurePath
from typing import Annotated, TextIO

import typer

from deuteron.compiler.counting import counted
from deuteron.compiler.whole_file import whole_file, write_whole

from .errors import CommandError
from .exports import FORMATS, ExportFormat, FolderFormat, Selection, read_source
from .lookup import from_bundle, from_service
from .output import print_predictors, print_records, print_unchecked, say, tell, writing
from .settings import Server, connect
from .signatures import AllowUnsigned, key_folder, read_signed

app = typer.Typer(no_args_is_help=True, help="Download, show, query and export bundles of best configurations.")

BundleFile = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A bundle file.")]


@app.command()
def pull(
    output: Annotated[Path, typer.Option("--output", "-o", help="File to bring up to date.")] = Path("configs.bundle"),
    kernel: Annotated[str | None, typer.Option(help="Only this kernel (its hash).")] = None,
    device: Annotated[str | None, typer.Option(help="Only this device (its key).")] = None,
    max_mib: Annotated[int, typer.Option(min=1, help="Largest bundle that is downloaded, in MiB.")] = 1024,
    allow_unsigned: AllowUnsigned = False,
    server: Server = None,
) -> None:
    """Download the newest bundle. A file that is current already is not sent again; a broken
    download goes on where it stopped; the file changes only when the new one is whole and signed.

    The key that a service shows first is printed and trusted from then on; `deuteron keys` says more.

    Example: `deuteron cache pull -o configs.bundle --server http://tuner:8642`
    """
    from deuteron.tuner import read_bundle  # lazy: help starts without the tuner
    from deuteron.tuner.records.trust import admit_pulled  # lazy: as above

    def accept(path: Path) -> None:
        say(admit_pulled(read_bundle(path), client.url, key_folder(), allow_unsigned=allow_unsigned).reason)

    with connect(server) as client:
        found = client.pull_bundle(output, kernel=kernel, device=device, accept=accept, most_bytes=max_mib << 20)
    count = read_bundle(output).manifest.count
    state = "downloaded" if found.changed else "is current"
    tell(f"{output}: {state}, {count} configurations, sha256 {found.sha256}")


@app.command()
def show(bundle: BundleFile, allow_unsigned: AllowUnsigned = False) -> None:
    """Verify a bundle and its signature, and list its configurations.

    Example: `deuteron cache show configs.bundle`
    """
    found, admission = read_signed(bundle, allow_unsigned=allow_unsigned)
    manifest = found.manifest
    tell(f"{bundle}: {counted(manifest.count, 'configuration')} from {manifest.service}, {manifest.created_at}")
    tell(admission.reason)
    print_records(found.records())
    print_unchecked(found.records())
    print_predictors(found.predictors())


@app.command()
def lookup(
    kernel: Annotated[
        str, typer.Argument(metavar="KERNEL", help="Name or hash of a kernel, FILE.py:KERNEL, or a built-in workload.")
    ],
    shape: Annotated[str, typer.Option(metavar="M=512,N=512", help="The shape of the launch.")],
    dtype: Annotated[str, typer.Option(help="The dtype of the launch.")] = "f32",
    device: Annotated[
        str, typer.Option(help="cpu or cuda:0 of this machine; or, from a service, a key or name.")
    ] = "cpu",
    bundle: Annotated[Path | None, typer.Option(help="Look in this file, not in a service.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail unless the match is exact.")] = False,
    allow_unsigned: AllowUnsigned = False,
    server: Server = None,
) -> None:
    """Ask which configuration a launch would get, and why.

    Example: `deuteron cache lookup softmax_kernel --shape M=1024,N=781 --bundle configs.bundle`
    """
    from deuteron.compiler.runtime.arrays.dtypes import canonical_dtype  # lazy: help starts without the compiler
    from deuteron.tuner.job import parse_shape  # lazy: help starts without the tuner

    if bundle is not None and server is not None:
        raise CommandError("--bundle and --server are two places to look", hint="give one of them")
    sizes = parse_shape(shape)
    canonical_dtype(dtype)  # one that kernels do not have was tuned for nothing
    if bundle is not None:
        found, _ = read_signed(bundle, allow_unsigned=allow_unsigned)
        answer = from_bundle(found, kernel, device, sizes, dtype, strict=strict)
    else:
        answer = from_service(server, kernel, device, sizes, dtype, strict=strict)
    tell(f"match   {answer.match}")
    tell(f"reason  {answer.reason}")
    tell(f"config  {answer.config}")


_SUMMARIES = "; ".join(f"{made.name}: {made.summary}" for made in FORMATS.values())


@app.command()
def export(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A bundle, or a folder or journal of `deuteron tune`.")
    ],
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help=f"{_SUMMARIES}.")] = "json",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Default: stdout. Of formats that are files the folder, which is made."),
    ] = None,
    triton: Annotated[
        str, typer.Option(metavar="VERSION", help="Of sglang: the version of Triton that SGLang runs with.")
    ] = "",
    blocks: Annotated[
        str,
        typer.Option(
            metavar="NAMES", help="Of helion: the kernel's block sizes in the order of the Helion kernel's tiles."
        ),
    ] = "",
    kernel: Annotated[
        str, typer.Option(metavar="KERNEL", help="Only this kernel: its name, or its hash or the beginning of that.")
    ] = "",
    dtype: Annotated[str, typer.Option(help="Only this dtype.")] = "",
    device: Annotated[str, typer.Option(metavar="KEY", help="Only this device (its key).")] = "",
    allow_unsigned: AllowUnsigned = False,
) -> None:
    """Write configurations for other programs. json and csv have every record; other formats have of
    each kernel, dtype, device and shape the one that a lookup gives: of the newest text of the kernel,
    measured with this machine's toolchain, else the newest.

    Example: `deuteron cache export configs.bundle --format python`
    """
    chosen = _format(form)
    for option, value, of in (("--triton", triton, "sglang"), ("--blocks", blocks, "helion")):
        if value and form != of:
            raise CommandError(f"{option} has no meaning with --format {form}", hint=f"it is for --format {of}")
    order = tuple(name.strip() for name in blocks.split(",") if name.strip())
    read = Selection(kernel, dtype, device).of(read_source(source, allow_unsigned=allow_unsigned))
    found = replace(read, triton=triton, blocks=order)
    if isinstance(chosen, FolderFormat):
        if output is None:
            raise CommandError(f"--format {form} writes files", hint="-o FOLDER says where")
        _write_files(chosen.files(found), output)
    elif output is None:
        chosen.write(found, sys.stdout)
    else:
        with writing(output), _whole_text(output) as file:
            chosen.write(found, file)


def _write_files(texts: Mapping[str, str], folder: Path) -> None:
    hint = "the source has a name that is no name"
    for name in texts:
        if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
            raise CommandError(f"{name!r} would lie outside {folder}", hint=hint)
        if "\0" in name:
            raise CommandError(f"no file can be called {name!r}", hint=hint)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_whole(folder / name, text)
    tell(f"{folder}: {', '.join(texts)}")


def _format(name: str) -> ExportFormat:
    if name not in FORMATS:
        raise CommandError(f"there is no format {name!r}", hint=f"one of {', '.join(FORMATS)}")
    return FORMATS[name]


@contextmanager
def _whole_text(path: Path) -> Iterator[TextIO]:
    """A file to write, which is whole under its name or not there."""
    with whole_file(path) as file:
        text = TextIOWrapper(file, encoding="utf-8", newline="")
        yield text
        text.detach()
