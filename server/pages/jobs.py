"""The jobs page, a job's page, and the stream that keeps the list of jobs live."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from deuteron.tuner.codec import decode
from deuteron.tuner.events import ShapeFinished

from ..auth import Reader
from ..context import ContextDep, ServiceContext
from ..store import ConfigEntry, Job, JobState, StoredConfig
from ..streams import stream_response
from .filters import NamePart, choice_field, filter_form, page_links, text_field
from .format import ago, optional_time, settings_text
from .html import Child, Markup, join, table, tag
from .layout import bar, empty, facts, page, pill, static_url

router = APIRouter(include_in_schema=False)

_SHOWN = 50
_LIVE_PAUSE_S = 0.5
_LIVE_QUIET_ROUNDS = 30


@router.get("/")
def jobs_page(
    context: ContextDep,
    _reader: Reader,
    kernel: NamePart = "",
    device: NamePart = "",
    state: NamePart = "",
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
) -> Response:
    wanted = JobState(state) if state in list(JobState) else None
    with context.store.read() as tx:
        jobs = tx.jobs.page(limit=_SHOWN + 1, before=before, state=wanted, kernel=kernel, device=device)
        counts = tx.jobs.count_by_state()
    more, jobs = len(jobs) > _SHOWN, jobs[:_SHOWN]
    summary = tag(
        "ul",
        [tag("li", tag("strong", count), " ", each.value) for each, count in counts.items()],
        class_="counts",
    )
    query: dict[str, str | int] = {"kernel": kernel, "device": device, "state": state}
    links: dict[str, dict[str, str | int]] = {"Newest": {}} if before is not None else {}
    links |= {"Older": {"before": jobs[-1].number}} if more else {}
    narrowed = any(query.values()) or before is not None
    return page(
        "Jobs",
        tag("div", tag("h1", "Jobs"), summary, class_="title"),
        filter_form(
            "/",
            text_field("kernel", "Kernel", kernel),
            text_field("device", "Device", device),
            choice_field("state", "State", state, [each.value for each in JobState]),
        )
        if any(counts.values())
        else None,
        _job_table(jobs) if jobs else _no_job(narrowed=narrowed),
        page_links("/", query, links) if links else None,
        current="/",
        # A narrowed list stands still: the stream tells of all jobs, and one that is not shown would load the page.
        scripts=() if narrowed else (static_url("jobs.js"),),
    )


def _no_job(*, narrowed: bool) -> Markup:
    if narrowed:
        return empty("No job is like that.")
    return empty("No job yet. Submit one:", tag("code", "deuteron submit softmax --shape M=1024,N=781"))


def _job_table(jobs: list[Job]) -> Markup:
    return table(
        ["Kernel", "State", "Progress", "Device", "Submitted", "Job"],
        [_job_row(job) for job in jobs],
        caption=f"At most {_SHOWN} jobs, newest first",
        id="jobs",
    )


def _job_row(job: Job) -> Markup:
    return tag(
        "tr",
        tag("td", tag("a", job.kernel_name, href=f"/jobs/{job.id}")),
        tag("td", pill(job.state.value), data_cell="state"),
        tag("td", progress(job), data_cell="progress"),
        tag("td", job.device),
        tag("td", tag("time", ago(job.created_at), datetime=job.created_at.isoformat())),
        tag("td", tag("code", job.id[:8])),
        data_job=job.id,
        data_open=not job.state.is_final,
    )


def progress(job: Job) -> list[Child]:
    total = job.screened if job.state.is_final else job.trials_total
    return [
        bar(job.screened, total, label=f"Trials of {job.kernel_name}"),
        tag("span", f"{job.trials_done} trials", class_="count"),
    ]


@router.get("/jobs/{job_id}")
def job_page(job_id: str, context: ContextDep, _reader: Reader) -> Response:
    with context.store.read() as tx:
        job, configs = tx.jobs.get(job_id), tx.config_history.of_job(job_id)
        starts = tx.events.of_kind(job_id, "shape_finished")
    known: list[tuple[str, Child]] = [
        ("Device", job.device),
        ("Worker", job.worker or "–"),
        ("Attempts", job.attempts),
        ("Submitted", ago(job.created_at)),
        (
            "Kernel",
            tag("a", tag("code", job.kernel_hash[:12]), href=f"/v1/kernels/{job.kernel_hash}"),
        ),
        ("Profile", _profile_link(job)),
    ]
    return page(
        f"{job.kernel_name} {job.id[:8]}",
        tag(
            "div",
            tag("h1", job.kernel_name, " ", tag("small", tag("code", job.id[:8]))),
            tag("span", pill(job.state.value), id="state"),
            _cancel_button(job),
            class_="title",
        ),
        tag("p", job.error or "", id="error", class_="error", hidden=job.error is None, role="alert"),
        tag("div", progress(job), id="progress", class_="wide"),
        facts(known),
        tag("h2", "Best configurations"),
        tag("div", result_table(configs), _starts(starts), id="results"),
        tag("h2", "Convergence"),
        tag(
            "div",
            id="chart",
            class_="chart",
            role="img",
            aria_label="Times of the trials and the best so far; the same numbers are in the table of all trials",
            data_open=not job.state.is_final,
        ),
        tag("p", id="sampled", class_="muted", hidden=True),
        tag(
            "p",
            [
                tag("a", "What the parameters do", href=f"/jobs/{job.id}/parameters"),
                " · ",
                tag("a", "Compare with another job", href=f"/compare?a={job.id}"),
            ],
        ),
        tag(
            "section",
            tag("h2", "Roofline"),
            tag(
                "div",
                id="roofline",
                class_="chart",
                role="img",
                aria_label="Operations a second of the trials over operations a byte, beneath what the device can do",
            ),
            id="roof",
            hidden=True,
        ),
        tag("div", tag("h2", "Trials"), tag("a", "All trials", href=f"/jobs/{job.id}/trials"), class_="title"),
        table(
            ["#", "Shape", "Dtype", "Phase", "Status", "Time", "Bound by", "Configuration"],
            [],
            caption="Trials, newest first",
            id="trials",
        ),
        current="/",
        scripts=("/static/plotly.min.js", static_url("roofline.js"), static_url("job.js")),
        charts=True,
    )


def _profile_link(job: Job) -> Child:
    if job.profile_sha256 is None:
        return "–"
    return tag("a", ".hatchet", href=f"/v1/jobs/{job.id}/profile")


def _cancel_button(job: Job) -> Markup:
    return tag(
        "button",
        "Cancel job",
        id="cancel",
        type="button",
        data_job=job.id,
        hidden=job.state.is_final,
        disabled=job.cancel_requested,
    )


@router.get("/jobs/{job_id}/results")
def job_results(job_id: str, context: ContextDep, _reader: Reader) -> Response:
    """The results alone, for the page to replace while the job runs."""
    with context.store.read() as tx:
        tx.jobs.get(job_id)
        configs = tx.config_history.of_job(job_id)
        starts = tx.events.of_kind(job_id, "shape_finished")
    return Response(join([result_table(configs), _starts(starts)]), media_type="text/html; charset=utf-8")


def _starts(finished: list[str]) -> Markup | None:
    """For each shape that started from earlier searches, what that was worth."""
    events = [decode(text, ShapeFinished, "event") for text in finished]
    lines = [
        tag("li", tag("code", f"{event.record.shape_key} {event.record.dtype}"), " ", event.start.text)
        for event in events
        if event.start is not None
    ]
    return tag("ul", lines, class_="muted") if lines else None


def result_table(configs: Sequence[StoredConfig | ConfigEntry]) -> Markup:
    """Records as rows: shape, times, speed-up with its interval, verdict, configuration."""
    if not configs:
        return empty("Nothing yet: a shape appears here when its search is finished.")
    return table(
        ["Shape", "Dtype", "Default", "Best", "Speed-up", "Verdict", "Configuration"],
        [_result_row(config) for config in configs],
        caption="Best configuration per shape",
    )


def _result_row(config: StoredConfig | ConfigEntry) -> Markup:
    record = json.loads(config.body)
    return tag(
        "tr",
        tag("td", tag("a", tag("code", settings_text(record["shape"])), href=f"/configs/{record['id']}")),
        tag("td", config.dtype),
        tag("td", optional_time(record["default_time_ns"]["median"]), class_="number"),
        tag("td", optional_time(record["time_ns"]["median"]), class_="number"),
        tag(
            "td",
            tag("strong", f"{record['speedup']['median']:.2f}×"),
            " ",
            tag("span", _evidence(record), class_="muted"),
            class_="number",
        ),
        tag("td", pill(record["verdict"])),
        tag("td", tag("code", settings_text(record["config"]))),
    )


def _evidence(record: Mapping[str, Any]) -> str:
    """The interval of the speed-up; where the default was kept, the best challenger's."""
    if record["verdict"] == "FASTER":
        return f"{record['speedup']['low']:.2f}–{record['speedup']['high']:.2f}"
    challenger = record.get("challenger")
    if challenger is None:
        return "no challenger"
    return f"challenger {challenger['median']:.3f}×, {challenger['low']:.3f}–{challenger['high']:.3f}"


@router.get("/live/jobs")
def live_jobs(request: Request, context: ContextDep, _reader: Reader) -> StreamingResponse:
    """State and progress of the newest jobs as they change: one connection for the whole list, because a
    browser opens only six to one host."""
    return stream_response(request, context, "read", _changes(request, context))


async def _changes(request: Request, context: ServiceContext) -> AsyncGenerator[bytes, None]:
    seen: dict[str, tuple[str, int]] = {}
    quiet = 0
    while not await request.is_disconnected():
        jobs = await to_thread.run_sync(_newest, context)
        changed = [job for job in jobs if seen.get(job.id) != (job.state.value, job.trials_done)]
        seen = {job.id: (job.state.value, job.trials_done) for job in jobs}
        for job in changed:
            data = {
                "id": job.id,
                "state": job.state.value,
                "trials": job.trials_done,
                "screened": job.screened,
                "total": job.screened if job.state.is_final else job.trials_total,
            }
            yield f"event: job\ndata: {json.dumps(data)}\n\n".encode()
        quiet = 0 if changed else quiet + 1
        if quiet >= _LIVE_QUIET_ROUNDS:
            quiet = 0
            yield b": still here\n\n"
        if not await context.feeds.sleep(_LIVE_PAUSE_S):
            return


def _newest(context: ServiceContext) -> list[Job]:
    with context.store.read() as tx:
        return tx.jobs.page(limit=_SHOWN)
