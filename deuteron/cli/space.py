"""``deuteron space``: the search space that a kernel shows by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .errors import CommandError
from .grouped import with_options
from .inferred_job import chosen_of, given_of
from .job_options import KernelOptions, LaunchOptions, read_workload, save_workload
from .kernel_file import existing_file, is_described, read_kernel, split_kernel
from .output import console, make_table, say, tell
from .pairs import parse_pairs, parse_value

if TYPE_CHECKING:
    from deuteron.compiler import DeviceProperties
    from deuteron.tuner.inference import InferredSpace, Subject
    from deuteron.tuner.workloads import Problem


@with_options
def space(
    *,
    workload: Annotated[
        str, typer.Argument(metavar="FILE:KERNEL", help="The file is never executed. Or a workload, as for tune.")
    ],
    shape: Annotated[
        str | None, typer.Option(metavar="M=512,N=512", help="A shape: limits tiles, and results are compared at it.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="Default: the workload's first; without a shape f16.")] = None,
    device: Annotated[
        str, typer.Option(help="cpu or cuda:0 of this machine; a product such as h200; or sm_80, sm_90a, ...")
    ] = "cpu",
    launch: LaunchOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of tables.")] = False,
    save: Annotated[
        Path | None, typer.Option("--save-workload", help="Write the workload with this space, for tune and submit.")
    ] = None,
) -> None:
    """Show which parameters of a kernel can be searched, over what, and why.

    The kernel is compiled for several values, and what changes in its IR says what a parameter is. With a shape the
    launch is known: the interpreter then also compares results, and tiles are limited by the sizes.

    Example: `deuteron space examples/matmul.py:matmul_kernel --device h200`
    """
    from deuteron.tuner.inference import device_of, infer_space, with_inferred_space  # lazy: help starts without it

    options = KernelOptions(**vars(launch))
    properties, target = device_of(device)
    subject, problem = _subject(workload, shape, dtype, options, properties, target)
    found = infer_space(subject, properties)
    if save is not None:
        if problem is None:
            raise CommandError("a workload needs a shape", hint="--shape M=512,N=512")
        shapes = problem.spec.shapes if shape is None else [problem.dims]
        save_workload(with_inferred_space(problem.spec, found), save, shapes, [problem.dtype])
        typer.echo(f"workload: {save}")
    elif as_json:
        typer.echo(json.dumps(found.to_json() | _sizes(found), indent=2))
    else:
        _print(found)


def _subject(
    text: str,
    shape: str | None,
    dtype: str | None,
    options: KernelOptions,
    properties: DeviceProperties,
    target: str,
) -> tuple[Subject, Problem | None]:
    """The kernel with what is known of its launches, and the workload at its shape if one is described."""
    from deuteron.tuner.inference import subject_of_kernel, subject_of_problem  # lazy: help starts without the tuner
    from deuteron.tuner.job import parse_shape  # lazy: as above
    from deuteron.tuner.workloads import Problem  # lazy: as above

    path, name = split_kernel(text)
    of_kernel = path.suffix == ".py" or name is not None
    chosen = chosen_of(options.search)
    if of_kernel and shape is None and not (options.description or is_described(existing_file(path))):
        source = read_kernel(text)
        values = {n: parse_value(v) for n, v in parse_pairs(options.constexpr, "--constexpr").items()}
        return subject_of_kernel(source, target, constexprs=values, chosen=chosen, dtype=dtype or "f16"), None
    sizes = parse_shape(shape) if shape is not None else {}
    spec = read_workload(text, dims=tuple(sizes), kernel=options)
    if not sizes and not spec.shapes:
        raise CommandError(f"{spec.name} needs a shape", hint=f"--shape {','.join(f'{d}=1024' for d in spec.dims)}")
    problem = Problem(spec, sizes or spec.shapes[0], dtype or spec.dtypes[0])
    given = given_of(text, options)
    return subject_of_problem(problem, properties.kind, target, given=given, chosen=chosen), problem


def _sizes(found: InferredSpace) -> dict[str, int | None]:
    """How many configurations there are: of all choices, and of those that the constraints let through."""
    if not found.searched:
        return {"configurations": 0, "valid": 0}
    return {"configurations": found.space().cartesian_size, "valid": found.bound().count()}


def _print(found: InferredSpace) -> None:
    table = make_table("parameter", "values", "role", "reason")
    for parameter in found.parameters:
        fixed = parameter.text or repr(parameter.default)
        values = ", ".join(map(str, parameter.choices)) if parameter.searched else f"{fixed} (fixed)"
        table.add_row(parameter.name, values, parameter.role, parameter.reason)
    console().print(table)
    if found.constraints:
        rules = make_table("constraint", "reason")
        for constraint in found.constraints:
            rules.add_row(constraint.text, constraint.reason)
        console().print(rules)
    for note in found.notes:
        say(note)
    sizes = _sizes(found)
    valid = "too many to count" if sizes["valid"] is None else f"{sizes['valid']:,}"
    own = f", the author's {len(found.configs)} among them" if found.configs else ""
    tell(f"{found.kernel} on {found.target}: {sizes['configurations']:,} configurations, {valid} valid{own}")
