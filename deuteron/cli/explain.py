"""``deuteron explain``: one page with the stages of a kernel side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deuteron.compiler.target import ARCHITECTURES

from .assumed import assume_for
from .kernel_file import read_kernel
from .output import say, write_output
from .pairs import parse_pairs, parse_value


def explain(
    kernel: Annotated[str, typer.Argument(metavar="FILE:KERNEL", help="The file is never executed.")],
    target: Annotated[str, typer.Option(help=f"cuda:{' '.join(ARCHITECTURES)}. No GPU is needed.")] = "cuda:90a",
    signature: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TYPE", help='Argument types such as "x=*f32:16" or "n=i32".'),
    ] = None,
    constexpr: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Compile-time values such as BLOCK=1024."),
    ] = None,
    dtype: Annotated[str, typer.Option(help="What pointers without a type point to.")] = "f32",
    num_warps: Annotated[int | None, typer.Option(help="Warps of a program.")] = None,
    num_stages: Annotated[int | None, typer.Option(help="Slots of the rings that feed products.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: KERNEL.html.")] = None,
) -> None:
    """Write an HTML page with a kernel's source, tile IR, GPU IR, PTX and (with nvdisasm) machine code side by side.

    A click on a line shows what it became, or where it comes from. Above are registers, shared memory, occupancy with
    what limits it, and what the instructions are for.

    Example: `deuteron explain examples/matmul.py:matmul_kernel --target cuda:90a --dtype f16`
    """
    from deuteron.compiler.runtime.variant.listings import make_listings  # lazy: help starts without the compiler
    from deuteron.compiler.runtime.variant.variant import make_variant  # lazy: help starts without the compiler
    from deuteron.profiler.explain import explain_page, static_profile  # lazy: help starts without the profiler

    source = read_kernel(kernel)
    schedule = {"num_warps": num_warps, "num_stages": num_stages}
    found = assume_for(
        source,
        target,
        signature=parse_pairs(signature or (), "--signature"),
        constexprs={name: parse_value(value) for name, value in parse_pairs(constexpr or (), "--constexpr").items()},
        schedule={name: value for name, value in schedule.items() if value is not None},
        dtype=dtype,
    )
    if found.assumed:
        say(f"assumed {', '.join(f'{name}={value}' for name, value in found.assumed.items())}")
    listings = make_listings(make_variant(source, found.signature, found.constexprs, target, found.schedule))
    path = output or Path(f"{source.name}.html")
    write_output(path, explain_page(listings))
    for name, value in static_profile(listings).items():
        say(f"{name:<28}{value}")
    say(f"wrote {path}")
