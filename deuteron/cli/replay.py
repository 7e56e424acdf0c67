"""``deuteron replay``: search strategies on recorded searches, without a device."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .errors import CommandError
from .output import check_folder_of, console, make_table, say, write_output

if TYPE_CHECKING:
    from deuteron.tuner.replay import Protocol, Recording, StrategyComparison, StrategyScore
    from deuteron.tuner.strategies import StrategyFactory


#: What a search that starts from another one is called.
_WARM = "surrogate (warm)"
#: More than any recorded space has configurations; scores are kept for each.
_MOST_EVALUATIONS = 1_000_000


class ProtocolName(StrEnum):
    """The protocols of deuteron.tuner.replay, as typer wants them."""

    charged = "charged"
    constrained = "constrained"
    noisy = "noisy"
    noisy_constrained = "noisy-constrained"


def replay(
    spaces: Annotated[
        list[Path],
        typer.Argument(
            metavar="SPACE...", help="Cache or T4 files of Kernel Tuner, results of KTT (.json, .json.gz), or journals."
        ),
    ],
    strategy: Annotated[
        str, typer.Option(metavar="A,B", help="Strategies to compare, as --strategy of tune names them.")
    ] = "surrogate,random",
    budget: Annotated[int, typer.Option(min=1, max=_MOST_EVALUATIONS, help="Evaluations of each search.")] = 200,
    seeds: Annotated[int, typer.Option(min=1, help="Searches of each strategy on each space.")] = 20,
    protocol: Annotated[
        ProtocolName,
        typer.Option(
            help="charged: an invalid proposal costs an evaluation; constrained: only valid ones are proposed; noisy "
            "and noisy-constrained: one recorded timing each, the score is that of the final pick."
        ),
    ] = ProtocolName.constrained,
    out: Annotated[Path | None, typer.Option("--json", help="Write all scores to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write medians and quartiles to this file, as SVG.")] = None,
    warm_from: Annotated[
        Path | None,
        typer.Option(help="A recording of the same kernel elsewhere: surrogate also starts from a search of it."),
    ] = None,
) -> None:
    """Compare search strategies on searches that somebody recorded.

    Scores are the time of the best configuration of the space over the time of the best one found, after so many
    evaluations: means over seeds, with standard errors, and quartiles over seeds after the last.

    Example: `deuteron replay convolution.json.gz --strategy surrogate,random --seeds 10 --plot convolution.svg`
    """
    from deuteron.tuner.replay import StrategyComparison, plot_svg  # lazy: help starts without the tuner

    recordings = [recording for path in spaces for recording in _read(path)]
    factories = _factories(strategy, warm_from)
    for path in (out, plot):
        if path is not None:
            check_folder_of(path)
    for recording in recordings if warm_from is not None else ():  # one of another kernel is told before all searches
        factories[_WARM](recording.space("constrained"), 0)
    comparison = StrategyComparison(tuple(_run(recordings, factories, protocol.value, budget, seeds)))
    _print(comparison)
    if out is not None:
        write_output(out, json.dumps(comparison.to_json()) + "\n")
        typer.echo(f"scores   {out}")
    if plot is not None:
        write_output(plot, plot_svg(comparison))
        typer.echo(f"plot     {plot}")


def _read(path: Path) -> list[Recording]:
    from deuteron.tuner.replay import read_journal, read_recording  # lazy: help starts without the tuner

    if path.is_dir() or path.suffix == ".jsonl":
        return read_journal(path)
    return [read_recording(path)]


def _factories(names: str, warm_from: Path | None) -> dict[str, StrategyFactory]:
    """Makers of the strategies by name; the warm one last."""
    from deuteron.tuner.replay import warm_surrogate  # lazy: help starts without the tuner
    from deuteron.tuner.strategies import STRATEGIES, check_strategy  # lazy: help starts without the tuner

    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        check_strategy(name)
    if not wanted and warm_from is None:
        raise CommandError("no strategy is named", hint=f"--strategy {','.join(list(STRATEGIES)[:2])}")
    factories = {name: STRATEGIES[name] for name in wanted}
    if warm_from is not None:
        (recording, *others) = _read(warm_from)
        if others:
            raise CommandError(f"{warm_from} has {len(others) + 1} recordings", hint="name a file that has one")
        factories[_WARM] = warm_surrogate(recording)
    return factories


def _run(
    recordings: Sequence[Recording],
    factories: dict[str, StrategyFactory],
    protocol: Protocol,
    budget: int,
    seeds: int,
) -> list[StrategyScore]:
    """All scores, with a bar on a terminal and a line for each of them elsewhere."""
    from rich.progress import Progress

    from deuteron.tuner.replay import compare  # lazy: help starts without the tuner

    scores = []
    with Progress(console=console(stderr=True), disable=not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task("searching", total=len(recordings) * len(factories) * seeds)
        found = compare(
            recordings,
            factories,
            protocol=protocol,
            budget=budget,
            seeds=range(seeds),
            progress=lambda: bar.advance(task),
        )
        for score in found:
            scores.append(score)
            last = score.at(budget)
            text = f"{score.recording} {score.strategy}: {last.mean:.3f} after {budget} evaluations"
            bar.print(text, highlight=False) if sys.stderr.isatty() else say(text)
    return scores


def _print(comparison: StrategyComparison) -> None:
    """A row for each recording and strategy; with several recordings, also for all of them together."""
    looks = comparison.checkpoints
    table = make_table(
        "recording", "strategy", *(f">{n}" for n in looks), f">quartiles at {looks[-1]}", ">ms a proposal"
    )
    for score in comparison.scores:
        means = [score.at(n) for n in looks]
        table.add_row(
            score.recording,
            score.strategy,
            *(f"{mean.mean:.3f} ±{mean.error:.3f}" for mean in means),
            " ".join(f"{quarter:.3f}" for quarter in score.quartiles_at(looks[-1])),
            f"{score.cost.median_ms:.1f}",
        )
    count = len({score.recording for score in comparison.scores})
    for name in comparison.strategies if count > 1 else ():
        means = [comparison.over_recordings(name, n) for n in looks]
        table.add_row(
            f"all {count}",
            name,
            *(f"{mean.mean:.3f} ±{mean.error:.3f}" for mean in means),
            "",
            f"{comparison.cost_ms(name):.1f}",
        )
    console().print(table)
