"""``deuteron cover``: few configurations for many shapes, and the rule that picks one."""

from __future__ import annotations

import math
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .errors import CommandError
from .exports.cover import cover_json, cover_python
from .job_options import KernelOptions, Sources, read_workload
from .output import check_folder_of, console, format_config, make_table, say, tell, write_output
from .settings import token_for
from .signatures import AllowUnsigned, bundle_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deuteron.tuner.cover import Cover, DispatchRule, TimeTable
    from deuteron.tuner.experience import SearchLog
    from deuteron.tuner.learn import RuleWorth
    from deuteron.tuner.workloads import WorkloadSpec


#: Nodes of the searches that only say what the rule is worth: five of them take no longer than the one that counts.
_NODES_OF_CHECK = 4_000


class CoverFormat(StrEnum):
    """How the answer is written."""

    table = "table"
    json = "json"
    python = "python"


class RuleKind(StrEnum):
    """How a launch finds its configuration."""

    tree = "tree"
    nearest = "nearest"


def cover(
    kernel: Annotated[
        str,
        typer.Argument(metavar="KERNEL", help="The name of a kernel; with --measure a workload, as for tune."),
    ],
    sources: Sources = None,
    allow_unsigned: AllowUnsigned = False,
    tolerance: Annotated[
        float | None, typer.Option(metavar="PERCENT", help="Most loss to the best, at every shape. Default: 3.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--k", min=1, help="In place of --tolerance: so many configurations, least loss.")
    ] = None,
    weight: Annotated[
        list[str] | None, typer.Option(metavar="M=1,N=2:WEIGHT", help="What a shape counts in means. Default: 1.")
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="Where searches of several are known.")] = None,
    device: Annotated[
        str | None, typer.Option(help="The key of a device, where searches on several are known.")
    ] = None,
    rule: Annotated[
        RuleKind,
        typer.Option(help="tree: comparisons of sizes and of their products; nearest: the nearest measured shape."),
    ] = RuleKind.tree,
    measure: Annotated[
        str | None,
        typer.Option("--measure", metavar="DEVICE", help="Measure missing pairs first, on cpu or cuda:0."),
    ] = None,
    form: Annotated[
        CoverFormat, typer.Option("--format", help="python: a module with config_for(sizes); json: all of it.")
    ] = CoverFormat.table,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: stdout.")] = None,
) -> None:
    """Choose the fewest configurations that serve all measured shapes of a kernel, and say which serves which.

    A configuration that was not measured at a shape is not taken for it; such pairs are named. --measure
    measures those of configurations that are the best of some shape, checked and raced against the best.

    Example: `deuteron cover matmul_kernel --from runs/matmul --tolerance 3 --format python -o configs.py`
    """
    from deuteron.tuner.cover import MOST_NODES, cover_with, cover_within  # lazy: help starts without the tuner

    if tolerance is not None and count is not None:
        raise CommandError("--tolerance and --k are two questions", hint="give one of them")
    percent = 3.0 if tolerance is None else tolerance
    if not 0 <= percent < math.inf:
        raise CommandError(f"a tolerance of {percent:g} %", hint="0 or more")
    if output is not None:
        if form is CoverFormat.table:
            raise CommandError("--output has no meaning with --format table", hint="--format python or json")
        check_folder_of(output)
    name = _workload(kernel).kernel.name if measure is not None else kernel
    logs = _logs(sources or (), name, allow_unsigned)
    table = _table(logs, dtype, device, weight or ())
    if measure is not None:
        table = _measured(table, kernel, measure, dtype, logs)

    def choose(table: TimeTable, nodes: int) -> Cover:
        return cover_within(table, percent / 100, nodes) if count is None else cover_with(table, count, nodes)

    make = _make_tree if rule is RuleKind.tree else _make_nearest
    found = choose(table, MOST_NODES)
    made, worth = make(found), _left_out(table, lambda table: make(choose(table, _NODES_OF_CHECK)))
    if form is CoverFormat.table:
        _print(found, made, worth)
        return
    write = cover_python if form is CoverFormat.python else cover_json
    text = write(name, found, made, worth)
    _say_missing(found)
    if output is None:
        typer.echo(text, nl=False)
        return
    write_output(output, text)


def _make_tree(found: Cover) -> DispatchRule:
    """The tree that also looks between the measured shapes, where there are enough of these and LightGBM is there."""
    from deuteron.compiler.errors import MissingExtra  # lazy: help starts without the compiler
    from deuteron.tuner.cover import dispatch_tree  # lazy: help starts without the tuner
    from deuteron.tuner.learn import LearnError, learnt_tree  # lazy: help starts without the tuner

    try:
        return learnt_tree(found)
    except LearnError:
        return dispatch_tree(found)
    except MissingExtra as error:
        _say_once(f"the rule sees the measured shapes alone: {error}")
        return dispatch_tree(found)


@cache
def _say_once(text: str) -> None:
    say(text)


def _make_nearest(found: Cover) -> DispatchRule:
    """The rule of the nearest measured shape."""
    from deuteron.tuner.cover import dispatch_nearest  # lazy: help starts without the tuner

    return dispatch_nearest(found)


def _left_out(table: TimeTable, make: Callable[[TimeTable], DispatchRule]) -> RuleWorth | None:
    """What such a rule is worth at shapes that it was made without; None where there are too few to say."""
    from deuteron.tuner.cover import CoverError  # lazy: help starts without the tuner
    from deuteron.tuner.learn import LEAST_SHAPES, left_out  # lazy: help starts without the tuner

    if len(table.shapes) < 2 * LEAST_SHAPES:
        return None
    try:
        return left_out(table, make)
    except CoverError:
        return None  # so few configurations cannot serve the other shapes


def _logs(sources: Sequence[str], name: str, allow_unsigned: bool) -> list[SearchLog]:
    from deuteron.tuner.experience.sources import read_logs  # lazy: help starts without the tuner

    if not sources:
        raise CommandError("nothing says where times are", hint="--from FOLDER, a journal, a bundle or a service")
    read = partial(read_logs, kernel_name=name, open_bundle=bundle_reader(allow_unsigned))
    logs = [log for source in sources for log in read(source, token=token_for(source))]
    if not logs:
        raise CommandError(
            f"no search of {name!r} is in {', '.join(sources)}", hint="the name of the kernel's function"
        )
    return logs


def _table(logs: Sequence[SearchLog], dtype: str | None, device: str | None, weights: Sequence[str]) -> TimeTable:
    from deuteron.tuner.cover import table_of_logs  # lazy: help starts without the tuner

    return table_of_logs(logs, dtype=dtype, device=device).weighted(dict(_weight(text) for text in weights))


def _weight(text: str) -> tuple[str, float]:
    from deuteron.tuner.job import parse_shape, shape_key  # lazy: help starts without the tuner

    shape, colon, number = text.rpartition(":")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not colon or not 0 < value < float("inf"):
        raise CommandError(f"--weight {text!r} is no shape with a weight above 0", hint="--weight M=1,N=4096:10")
    return shape_key(parse_shape(shape)), value


def _workload(text: str) -> WorkloadSpec:
    hint = "`deuteron tune FILE.py:KERNEL ... --save-workload FILE.json` writes how it is launched: name that file"
    return read_workload(text, dims=(), kernel=KernelOptions(), hint=hint)


def _measured(table: TimeTable, workload: str, device: str, dtype: str | None, logs: Sequence[SearchLog]) -> TimeTable:
    """The table with the missing pairs of all configurations that are some shape's best."""
    from deuteron.compiler import get_device  # lazy: help starts without the compiler
    from deuteron.tuner.cover import measure_missing  # lazy: help starts without the tuner

    spec = _workload(workload)
    chosen = dtype or next(log.dtype for log in logs if log.known)
    pairs = table.missing(table.winners())
    return measure_missing(table, pairs, workload=spec, dtype=chosen, device=get_device(device), tell=say)


def _print(found: Cover, rule: DispatchRule, worth: RuleWorth | None) -> None:
    from deuteron.tuner.job import shape_key  # lazy: help starts without the tuner

    table = make_table("shape", "best", "chosen", ">loss", ">may be")
    losses = rule.losses(found)
    for served, loss in zip(found.served, losses, strict=True):
        shape = found.table.shapes[served.shape]
        best, place = format_config(found.table.configs[served.best]), rule.pick(shape)
        ends = found.table.loss_range(served.shape, found.configs[place])
        may_be = "" if ends is None else f"{ends[0]:.1%} to {ends[1]:.1%}"
        table.add_row(shape_key(shape), best, f"#{place}", f"{loss:.2%}", may_be)
    console().print(table)
    for place, config in enumerate(rule.configs):
        tell(f"#{place}  {format_config(config)}")
    typer.echo("")
    for line in _rule_lines(rule):
        tell(line)
    size = len(found.configs)
    why = "no fewer do" if size == found.least else f"at least {found.least} are needed: fewer may do"
    covered = f"{_count(size, 'configuration')} for {_count(len(found.served), 'shape')} ({why})"
    typer.echo(
        f"\n{covered}; worst loss by this rule {max(losses):.2%}; "
        f"mean loss with the best of them {found.mean:.2%}{'' if found.proven else ', perhaps not the least'}"
    )
    if worth is not None:
        typer.echo(str(worth))
    _say_missing(found)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _rule_lines(rule: DispatchRule) -> list[str]:
    from deuteron.tuner.cover.dispatch import describe_tree  # lazy: help starts without the tuner

    if rule.tree is None:
        return ["the configuration of the nearest measured shape, by log2 of the sizes"]
    return describe_tree(rule.tree)


def _say_missing(found: Cover) -> None:
    from deuteron.tuner.job import shape_key  # lazy: help starts without the tuner

    if not found.missing:
        return
    say(f"{len(found.missing)} pairs were not measured, and count as outside the tolerance (--measure measures them):")
    for shape, config in found.missing[:10]:
        say(f"  {shape_key(found.table.shapes[shape])}  {format_config(found.table.configs[config])}")
    if len(found.missing) > 10:
        say(f"  and {len(found.missing) - 10} more")
