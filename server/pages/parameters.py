"""A job's parameters: how much of the time each explains, and all configurations as lines through their values."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fastapi import APIRouter, Response

from ..auth import Reader
from ..context import ContextDep
from ..store import StoredTrial
from .analysis import ParameterEffect, parameter_effects
from .html import Child, table, tag
from .layout import bar, empty, page, static_url

router = APIRouter(include_in_schema=False)

_MOST_TRIALS = 5000


@router.get("/jobs/{job_id}/parameters")
def parameters_page(job_id: str, context: ContextDep, _reader: Reader) -> Response:
    """For each shape and dtype of a job what its parameters explain of the times."""
    with context.store.read() as tx:
        job, trials = tx.jobs.get(job_id), tx.trials.sample(job_id, at_most=_MOST_TRIALS)
    searches: dict[tuple[str, str], list[StoredTrial]] = {}
    for trial in trials:
        if trial.phase == "screen" and (trial.median_ns or 0.0) > 0:
            searches.setdefault((trial.shape, trial.dtype), []).append(trial)
    title = tag("a", f"{job.kernel_name} {job.id[:8]}", href=f"/jobs/{job.id}")
    cut = f"Of {job.trials_done} trials {len(trials)}, evenly spaced." if len(trials) < job.trials_done else None
    return page(
        f"{job.kernel_name} {job.id[:8]} parameters",
        tag("div", tag("h1", "Parameters of ", title), class_="title"),
        tag("p", cut, class_="muted") if cut else None,
        [_search(shape, dtype, found) for (shape, dtype), found in searches.items()]
        or empty("No trial has worked yet."),
        current="/",
        scripts=("/static/plotly.min.js", static_url("parameters.js")),
        charts=True,
    )


def _search(shape: str, dtype: str, trials: Sequence[StoredTrial]) -> Child:
    timed = [(json.loads(trial.body)["config"], trial.median_ns or 0.0) for trial in trials]
    effects = parameter_effects(timed)
    name = f"{', '.join(f'{dim}={size}' for dim, size in json.loads(shape).items())} {dtype}"
    heading = tag("h2", tag("code", name), " ", tag("small", f"{len(trials)} trials"))
    if not effects:
        return tag("section", heading, empty("Too few trials, or nothing was varied."))
    return tag(
        "section",
        heading,
        table(
            ["Parameter", "Variance explained alone", "Fastest value", "Slowest value takes"],
            [_effect_row(effect) for effect in effects],
            caption=f"Parameters of {name} by what they explain",
        ),
        tag(
            "div",
            class_="lines",
            role="img",
            aria_label=f"Configurations of {name} as lines through their values, the fastest tenth in front",
            # Drawn in the order of the table, so that what matters stands together.
            data_names=json.dumps([effect.name for effect in effects]),
            data_trials=json.dumps(timed),
        )
        if len(effects) > 1
        else None,
    )


def _effect_row(effect: ParameterEffect) -> Child:
    percent = round(100 * effect.share)
    return tag(
        "tr",
        tag("th", tag("code", effect.name), scope="row"),
        tag("td", bar(percent, 100, label=f"{effect.name} explains {percent} %"), f"{percent} %"),
        tag("td", tag("code", effect.best)),
        tag("td", f"{effect.gain:.2f}× its time", class_="number"),
    )
