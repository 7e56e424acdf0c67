"""What a trial's configuration compiles to: source, intermediate representations and assembly side by side."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fastapi import APIRouter, Response

from deuteron.compiler.errors import DeuteronError
from deuteron.tuner.codec import decode
from deuteron.tuner.evaluate.messages import Shown, ShownLine
from deuteron.tuner.trial import Trial

from ..auth import Reader
from ..checking import show_code
from ..context import ContextDep
from .format import settings_text
from .html import Child, Markup, tag
from .layout import page, static_url

router = APIRouter(include_in_schema=False)

_TITLES = {"source": "Source", "tile": "Tile IR", "gpu": "GPU IR", "llvm": "LLVM IR", "ptx": "PTX", "sass": "SASS"}
#: Lines of one stage: what nobody reads to the end, browsers need not lay out.
_MOST_LINES = 4000


@router.get("/jobs/{job_id}/trials/{trial_id}/code")
def code_page(job_id: str, trial_id: str, context: ContextDep, _reader: Reader) -> Response:
    """The configuration compiled again, now: what the trial ran, if the compiler is the same."""
    with context.store.read() as tx:
        job, stored = tx.jobs.get(job_id), tx.trials.get(job_id, trial_id)
    trial = decode(stored.body, Trial, "trial")
    dims = json.loads(stored.shape)
    try:
        shown = show_code(context, job, dims, stored.dtype, trial.config)
    except DeuteronError as error:
        shown = Shown("failed", str(error))
    title = tag("a", f"trial {trial.number}", href=f"/jobs/{job.id}/trials/{trial_id}")
    return page(
        f"{job.kernel_name} {job.id[:8]} trial {trial.number} code",
        tag("div", tag("h1", "Code of ", title), class_="title"),
        tag(
            "p",
            tag("code", f"{settings_text(dims)} {stored.dtype}: {settings_text(trial.config)}"),
            " compiled again by the service, for the device of the job.",
        ),
        _stages(shown),
        current="/",
        scripts=(static_url("code.js"),),
    )


def _stages(shown: Shown) -> Child:
    if shown.status != "ok":
        return [
            tag("p", "It cannot be shown: the configuration does not compile here.", role="alert"),
            tag("pre", shown.error or shown.status, class_="error", tabindex=0),
        ]
    return [
        tag("p", "A click on a line marks what it became, or where it comes from.", class_="muted"),
        tag("div", [_stage(name, lines) for name, lines in shown.stages.items()], class_="stages"),
    ]


def _stage(name: str, lines: Sequence[ShownLine]) -> Markup:
    title = _TITLES.get(name, name)
    cut = f"The first {_MOST_LINES} of {len(lines)} lines." if len(lines) > _MOST_LINES else None
    rows = [tag("span", line.text or " ", data_line=line.source) for line in lines[:_MOST_LINES]]
    return tag(
        "section",
        tag("h2", title),
        tag("p", cut, class_="muted") if cut else None,
        tag("pre", tag("code", rows), tabindex=0, role="region", aria_label=title, data_stage=name),
    )
