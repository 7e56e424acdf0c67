"""What ``tune`` and ``submit`` share: the options that describe a job, and the job that they describe."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deuteron.tuner.strategies import DEFAULT_STRATEGY, STRATEGIES
from deuteron.tuner.workloads import BUILTINS

from .errors import CommandError
from .kernel_file import is_described, read_kernel, split_kernel
from .output import write_output
from .pairs import parse_pair, parse_pairs, parse_value, split_outside

if TYPE_CHECKING:
    from deuteron.tuner import JobSpec
    from deuteron.tuner.workloads import WorkloadSpec

Workload = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD",
        help=f"{', '.join(BUILTINS)}; a workload as FILE.json; or FILE.py:KERNEL.",
    ),
]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--from",
        metavar="SOURCE",
        help="A folder or journal of `deuteron tune`, a bundle, or the http:// address of a service. Repeatable.",
    ),
]


@dataclass(frozen=True)
class LaunchOptions:
    """How FILE:KERNEL is launched, and what is searched, as it was typed."""

    description: Annotated[
        Path | None,
        typer.Option(
            "--workload",
            metavar="FILE.json",
            help="FILE:KERNEL: how the kernel is launched, where neither the kernel's file nor options say it.",
        ),
    ] = None
    tensor: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=M,N",
            help="FILE:KERNEL: shape of a pointer argument, over the dims; :output, :inout or a dtype may follow.",
        ),
    ] = field(default_factory=list)
    scalar: Annotated[
        list[str],
        typer.Option(metavar="NAME=EXPR", help="FILE:KERNEL: value of a scalar argument, over the dims."),
    ] = field(default_factory=list)
    grid: Annotated[
        str | None,
        typer.Option(metavar="EXPR[;EXPR]", help="FILE:KERNEL: the grid, such as cdiv(M, BLOCK)."),
    ] = None
    search: Annotated[
        list[str],
        typer.Option(metavar="NAME=1,2,4", help="FILE:KERNEL: choices of a constexpr or, on a GPU, num_warps."),
    ] = field(default_factory=list)
    constexpr: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=EXPR", help="FILE:KERNEL: a constexpr fixed by the shape. Other expressions may name it."
        ),
    ] = field(default_factory=list)

    @property
    def given(self) -> list[str]:
        """The options that were given."""
        spelled = {"description": "--workload"}
        return [spelled.get(f.name, f"--{f.name}") for f in fields(self) if getattr(self, f.name)]


@dataclass(frozen=True)
class KernelOptions(LaunchOptions):
    """What only FILE:KERNEL needs, as it was typed."""

    constraint: Annotated[
        list[str],
        typer.Option(
            metavar="EXPR",
            help="FILE:KERNEL: what has to be true of a configuration, over dims and parameters, such as BLOCK >= N. "
            "May be repeated.",
        ),
    ] = field(default_factory=list)


@dataclass(frozen=True)
class JobOptions:
    """What is tuned, where and for how long, as it was typed."""

    workload: Workload
    shape: Annotated[
        list[str],
        typer.Option(metavar="M=512,N=512", help="May be repeated. Default: the workload's own shapes."),
    ] = field(default_factory=list)
    dtype: Annotated[list[str], typer.Option(help="May be repeated. Default: the workload's first.")] = field(
        default_factory=list
    )
    device: Annotated[str, typer.Option(help="cpu, or cuda:0; `deuteron devices` lists them.")] = "cpu"
    trials: Annotated[int | None, typer.Option(min=1, help="Most configurations per shape. Default: 100.")] = None
    seconds: Annotated[
        float | None,
        typer.Option(
            help="Seconds for the whole job, divided evenly among shapes and dtypes: once a configuration works "
            "nothing is tried after three quarters of a share, earlier where a race will take longer than the rest, "
            "but not before half of it; race and final are timed in the rest. Nothing is cut short: the program's "
            "start, the trial under way, and processes, checks and least rounds of race and final come on top."
        ),
    ] = None
    strategy: Annotated[str, typer.Option(help=f"{', '.join(STRATEGIES)}. Those of Optuna need the extra optuna.")] = (
        DEFAULT_STRATEGY
    )
    seed: Annotated[int, typer.Option(help="The same seed proposes the same configurations.")] = 0

    def job(self, kernel: KernelOptions) -> JobSpec:
        """The job that the options describe.

        Raises:
            DeuteronError: the message names the option, the field of the file, or the place in the kernel.
        """
        from deuteron.tuner import Budget, JobSpec  # lazy: help starts without the tuner
        from deuteron.tuner.job import parse_shape  # lazy: help starts without the tuner

        sizes = [parse_shape(text) for text in self.shape]
        spec = read_workload(self.workload, dims=tuple(sizes[0]) if sizes else (), kernel=kernel)
        return JobSpec(
            workload=spec,
            shapes=tuple(sizes) or spec.shapes,
            dtypes=tuple(self.dtype) or spec.dtypes[:1],
            device=self.device,
            budget=Budget(seconds=self.seconds) if self.trials is None else Budget(self.trials, self.seconds),
            strategy=self.strategy,
            seed=self.seed,
        )


def read_workload(
    text: str, *, dims: Sequence[str], kernel: KernelOptions, hint: str = "--shape M=512,N=512"
) -> WorkloadSpec:
    """A built-in workload, one from a JSON file, or one inferred from a kernel's text. ``hint``: what to do where that
    needs ``dims``."""
    from deuteron.tuner.workloads import builtin_workload  # lazy: help starts without the tuner

    path, name = split_kernel(text)
    if path.suffix == ".py" or name is not None:
        return _from_kernel(text, dims, kernel, hint)
    if kernel.given:
        raise CommandError(
            f"{kernel.given[0]} describes a kernel of a file, and {text!r} is not one",
            hint="deuteron tune FILE.py:KERNEL ...",
        )
    if path.suffix == ".json" or path.is_file():
        return _from_json(path)
    if text not in BUILTINS:
        raise CommandError(
            f"there is no workload {text!r}",
            hint=f"{', '.join(BUILTINS)}, a FILE.json, or FILE.py:KERNEL",
        )
    return builtin_workload(text)


def _from_json(path: Path) -> WorkloadSpec:
    from deuteron.tuner.codec import parse_json  # lazy: help starts without the tuner
    from deuteron.tuner.input_file import read_file  # lazy: help starts without the tuner
    from deuteron.tuner.workloads import workload_from_json  # lazy: help starts without the tuner

    try:
        content = read_file(path)
    except OSError as error:
        raise CommandError(
            f"cannot read the workload {path}: {error.strerror}",
            hint="`deuteron tune FILE.py:KERNEL --save-workload FILE.json` writes one",
        ) from None
    return workload_from_json(parse_json(content, str(path)), str(path))


def _from_kernel(text: str, dims: Sequence[str], options: KernelOptions, hint: str) -> WorkloadSpec:
    """A kernel of the user's: described in its file or in a JSON file, else by options and inference."""
    from deuteron.tuner import resolve_workload  # lazy: help starts without the tuner
    from deuteron.tuner.workloads.inferred import infer_workload  # lazy: help starts without the tuner

    source = read_kernel(text)
    full_name = f"{source.filename}:{source.name}"
    if options.description is not None:
        return resolve_workload(full_name, options.description)
    if not options.given and is_described(Path(source.filename)):
        return resolve_workload(full_name)
    if not dims:
        raise CommandError(
            f"{source.name} needs a shape: what are its sizes called, and how large are they?",
            hint=hint,
        )
    return infer_workload(
        source,
        dims=dims,
        tensors={n: tuple(split_outside(v)) for n, v in _one_each(options.tensor, "--tensor").items()},
        scalars=parse_pairs(options.scalar, "--scalar"),
        grid=tuple(axis.strip() for axis in options.grid.split(";")) if options.grid else None,
        choices=choices_of(options.search),
        constexprs=parse_pairs(options.constexpr, "--constexpr"),
        constraints=options.constraint,
    )


def choices_of(search: Sequence[str]) -> dict[str, tuple[object, ...]]:
    """The values of each --search; raises CommandError."""
    found = {
        name: tuple(parse_value(part) for part in split_outside(value))
        for name, value in _one_each(search, "--search").items()
    }
    for name, values in found.items():
        wrong = next((value for value in values if isinstance(value, str) and value[:1].isdigit()), None)
        if wrong is not None:
            raise CommandError(f"--search {name}: {wrong!r} is no number", hint=f"--search {name}=1,2,4")
    return found


def _one_each(texts: Sequence[str], option: str) -> dict[str, str]:
    """Pairs whose values contain commas: one pair a use of the option, each name once."""
    found: dict[str, str] = {}
    for name, value in (parse_pair(text, option) for text in texts):
        if name in found:
            raise CommandError(f"{option} gives {name!r} twice", hint=f"{option} {name}=... once, with all values")
        found[name] = value
    return found


def save_workload(spec: WorkloadSpec, path: Path, shapes: Sequence[Mapping[str, int]], dtypes: Sequence[str]) -> None:
    """Write a workload as JSON: to be edited, tuned, submitted, for these shapes and the first of these dtypes unless
    others are named then."""
    from msgspec.structs import replace  # lazy: help starts without the tuner

    others = (dtype for dtype in spec.dtypes if dtype not in dtypes)
    saved = replace(spec, shapes=tuple(shapes), dtypes=(*dtypes, *others))
    write_output(path, json.dumps(saved.to_json(), indent=2) + "\n")
