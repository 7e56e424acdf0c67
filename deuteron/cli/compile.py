"""``deuteron compile``: any stage of a kernel, from its text."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deuteron.compiler.target import ARCHITECTURES

from .assumed import assume_for
from .errors import CommandError
from .kernel_file import read_kernel
from .output import say, write_output
from .pairs import parse_pairs, parse_value

if TYPE_CHECKING:
    from deuteron.compiler.runtime.variant.metadata import KernelMetadata
    from deuteron.compiler.source.assume import Assumptions


class Stage(StrEnum):
    """What ``--emit`` can print."""

    TILE = "tile"
    LINALG = "linalg"
    GPU = "gpu"
    LLVM = "llvm"
    PTX = "ptx"
    CUBIN = "cubin"
    OBJECT = "object"
    ASM = "asm"


def compile_kernel(
    kernel: Annotated[str, typer.Argument(metavar="FILE:KERNEL", help="The file is never executed.")],
    target: Annotated[str, typer.Option(help=f"cpu, or cuda:{' '.join(ARCHITECTURES)}. No GPU is needed.")] = "cpu",
    emit: Annotated[Stage | None, typer.Option(help="Default: ptx on a GPU, asm on a CPU.")] = None,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="STEP",
            help="With --emit tile: after the pass fold, cse, ...; with --emit gpu: after the step structure, ...",
        ),
    ] = None,
    times: Annotated[bool, typer.Option("--time", help="Say how long each stage took.")] = False,
    signature: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TYPE", help='Argument types such as "x=*f32:16" or "n=i32".'),
    ] = None,
    constexpr: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Compile-time values such as BLOCK=1024."),
    ] = None,
    dtype: Annotated[str, typer.Option(help="What pointers without a type point to.")] = "f32",
    num_warps: Annotated[int | None, typer.Option(help="Warps of a program on a GPU.")] = None,
    num_stages: Annotated[int | None, typer.Option(help="Slots of the rings that feed products on a GPU.")] = None,
    persistent: Annotated[
        bool | None,
        typer.Option("--persistent/--no-persistent", help="A GPU program works on many tiles; --no-persistent: one."),
    ] = None,
    maxnreg: Annotated[int | None, typer.Option(help="Most registers of a thread on a GPU.")] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="Keep tl.device_assert, and assert that integers do not overflow.")
    ] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: stdout.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not list assumptions.")] = False,
) -> None:
    """Compile a kernel and print one stage of it.

    Types and values that are not given are inferred from the text, block sizes so that tiles have 8,192 elements at
    most; stderr says what was assumed.

    Example: `deuteron compile examples/matmul.py:matmul_kernel --target cuda:90a --emit ptx --dtype f16`
    """
    from deuteron.compiler import compile as compile_source  # lazy: help starts without the compiler

    source = read_kernel(kernel)
    schedule = {"num_warps": num_warps, "num_stages": num_stages, "persistent": persistent, "maxnreg": maxnreg}
    found = assume_for(
        source,
        target,
        signature=parse_pairs(signature or (), "--signature"),
        constexprs={name: parse_value(value) for name, value in parse_pairs(constexpr or (), "--constexpr").items()},
        schedule={name: value for name, value in schedule.items() if value is not None}
        | ({"debug": True} if debug else {}),
        dtype=dtype,
    )
    stage = emit.value if emit else ("asm" if target == "cpu" else "ptx")
    if not quiet:
        _report(found)
    compiled = compile_source(
        source,
        signature=found.signature,
        constexprs=found.constexprs,
        target=target,
        stop_after=None if stage == "asm" and target != "cpu" else stage,
        step=after,
        **found.schedule,  # type: ignore[arg-type]
    )
    if not quiet:
        _report_slots(compiled.metadata)
    if times:
        _report_times(compiled.metadata)
    _write(compiled.asm[stage], output)


def _report(found: Assumptions) -> None:
    if not found.assumed:
        return

    values = ", ".join(f"{name}={value}" for name, value in found.assumed.items())
    say(f"assumed {values}")
    say("(--signature NAME=TYPE, --constexpr NAME=VALUE and --dtype say otherwise)")


def _report_slots(made: KernelMetadata) -> None:
    if made.num_slots:
        other = f" (num_stages = {made.num_stages}: no more fit, or the loop has its own)"
        say(f"rings of {made.num_slots} slots{other if made.num_slots != made.num_stages else ''}")


def _report_times(made: KernelMetadata) -> None:
    """Milliseconds of each stage that ran, steps of the GPU stage below it."""
    from deuteron.compiler.runtime.variant.pipeline import STAGES  # lazy: help starts without the compiler

    for stage in ("frontend", *STAGES[made.target.partition(":")[0]]):
        if stage in made.stage_ms:
            say(f"{stage:<14}{made.stage_ms[stage]:9.2f} ms")
        if stage == "gpu":
            for name, part in made.gpu_steps.items():
                say(f"  {name:<12}{part:9.2f} ms")
    say(f"{'total':<14}{sum(made.stage_ms.values()):9.2f} ms")


def _write(content: str | bytes, output: Path | None) -> None:
    if output is not None:
        write_output(output, content)
    elif isinstance(content, str):
        sys.stdout.write(content if content.endswith("\n") else content + "\n")
    elif sys.stdout.isatty():
        raise CommandError("the terminal cannot show binary code", hint="-o FILE, or a pipe")
    else:
        sys.stdout.buffer.write(content)
