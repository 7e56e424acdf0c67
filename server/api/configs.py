"""/v1/configs: lookups."""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated
from urllib.parse import parse_qsl

import msgspec
from anyio import to_thread
from fastapi import Path, Query, Request, Response
from fastapi.responses import JSONResponse

from deuteron.tuner import Answer
from deuteron.tuner.codec import decode
from deuteron.tuner.errors import RecordNotFound, SchemaError, ShapeMismatch
from deuteron.tuner.job import parse_shape

from ..auth import Reader, Submitter
from ..context import ContextDep
from ..lookups import Question
from ..models import MOST_DTYPE, MOST_NAME
from ..problems import HttpProblem
from ..resolving import resolve_kernel
from ..store import ConfigEntry, NotFound, StoredConfig
from .paging import Cursor, Limit, decode_cursor, encode_cursor, link_next
from .routes import make_router
from .schemas.configs import (
    ConfigAnswer,
    ConfigPage,
    HistoryAnswer,
    HistoryEntry,
    LookupAnswer,
    LookupBatchAnswer,
    LookupBatchBody,
    ReasonBody,
    WithdrawAnswer,
)

router = make_router("configs", "/v1/configs")

ConfigId = Annotated[str, Path(max_length=36, description="The record's `id`.")]

_SHAPE_QUERY = Query(
    description="Dimensions as M=1024,N=781.",
    examples=["M=1024,N=781"],
    json_schema_extra={"pattern": r"^\w+=[0-9]{1,20}(,\w+=[0-9]{1,20})*$"},
)

#: The address of lookups, and the parameters that it knows.
LOOKUP_PATH = "/v1/configs/lookup"
_REQUIRED = frozenset({"kernel", "device", "shape"})
_KNOWN = _REQUIRED | {"dtype", "toolchain", "strict"}
_FLAGS = {"true": True, "false": False}

# Lookups answer with what the tuner made: checking it against the schema again would cost as much as finding it.


@router.get("/lookup", summary="Look a configuration up", response_model=LookupAnswer)
async def lookup_config(
    context: ContextDep,
    _reader: Reader,
    kernel: Annotated[str, Query(max_length=MOST_NAME, description="Kernel hash or name.", examples=["softmax"])],
    device: Annotated[str, Query(max_length=MOST_NAME, description="Device key or name.", examples=["NVIDIA H200"])],
    shape: Annotated[str, _SHAPE_QUERY],
    dtype: Annotated[str, Query(max_length=MOST_DTYPE, examples=["f32"])] = "f32",
    toolchain: Annotated[
        str | None,
        Query(
            description="JSON object of what you compile with, as in a record; any if left out.",
            json_schema_extra={"contentMediaType": "application/json", "examples": ['{"target": "cuda:90a"}']},
        ),
    ] = None,
    strict: Annotated[bool, Query(description="404 unless the answer is exact.")] = False,
) -> Response:
    """The exact record if there is one, else the nearest shape, or the default; `reason` says which and why, and
    `toolchain_differences` how the record's toolchain differs from yours."""
    question = Question(kernel, device, parse_shape(shape), dtype, _toolchain(toolchain))
    # What is remembered is answered here: handing the question to a thread costs ten times as much as that.
    answer = context.lookups.recall(question, strict=strict)
    if answer is None:
        ask = partial(context.lookups.answer, question, strict=strict)
        answer = await to_thread.run_sync(ask)
    return lookup_response(answer)


def plain_question(query: bytes) -> tuple[Question, bool] | None:
    """The question of a lookup's query string and whether it is strict, where :func:`lookup_config` would read the
    same out of it; None for one that has to be refused, or is spelled in a way that only FastAPI reads."""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    given = dict(pairs)
    if len(given) != len(pairs) or not _REQUIRED <= given.keys() <= _KNOWN:
        return None
    strict = _FLAGS.get(given.get("strict", "false"))
    if strict is None:
        return None
    try:
        shape, toolchain = parse_shape(given["shape"]), _toolchain(given.get("toolchain"))
        return Question(given["kernel"], given["device"], shape, given.get("dtype", "f32"), toolchain), strict
    except SchemaError:
        return None


def lookup_response(answer: Answer) -> Response:
    """An answer as JSON."""
    return Response(msgspec.json.encode(answer), media_type="application/json")


@router.post("/lookup", summary="Look many configurations up", response_model=LookupBatchAnswer)
def lookup_batch(body: LookupBatchBody, context: ContextDep, _reader: Reader) -> Response:
    """One round trip for everything a program is going to launch. Answers are in the order of the questions."""
    answers = []
    for number, item in enumerate(body.lookups):
        try:
            question = Question(item.kernel, item.device, item.shape, item.dtype, item.toolchain)
            answers.append(context.lookups.answer(question, strict=body.strict).to_json())
        except (ShapeMismatch, RecordNotFound, SchemaError) as error:
            raise type(error)(f"lookups[{number}]: {error.message}", hint=error.hint) from None
        except HttpProblem as problem:
            where = f"lookups[{number}]: {problem.detail}"
            raise HttpProblem(problem.status_code, problem.slug, where, hint=problem.hint) from None
    return JSONResponse({"answers": answers})


@router.get("", summary="List stored configurations")
def list_configs(
    request: Request,
    response: Response,
    context: ContextDep,
    _reader: Reader,
    kernel: Annotated[str | None, Query(description="Kernel hash or name.")] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> ConfigPage:
    with context.store.read() as tx:
        kernel_hash = resolve_kernel(tx, kernel) if kernel else None
        after = decode_cursor(cursor) if cursor is not None else ""
        configs = tx.configs.page(after=after, limit=limit + 1, kernel_hash=kernel_hash)
    following = encode_cursor(configs[limit - 1].id) if len(configs) > limit else None
    link_next(request, response, following)
    return ConfigPage(configs=[json.loads(item.body) for item in configs[:limit]], next=following)


@router.get("/{config_id}", summary="Read a stored configuration")
def get_config(config_id: ConfigId, context: ContextDep, _reader: Reader) -> ConfigAnswer:
    """404 once it was replaced or withdrawn; its history stays."""
    with context.store.read() as tx:
        return _answer(tx.configs.get(config_id))


@router.get("/{config_id}/history", summary="What happened to a configuration")
def get_history(config_id: ConfigId, context: ContextDep, _reader: Reader) -> HistoryAnswer:
    """Every record that was ever stored for the same kernel, device, dtype, shape and toolchain: who measured it, when,
    in which job, with which interval; and who withdrew or pinned it, and why."""
    with context.store.read() as tx:
        known = tx.config_history.latest(config_id)
        if known is None:
            raise NotFound(f"there never was a configuration {config_id}", hint="GET /v1/configs lists what is stored")
        entries = tx.config_history.of_key(known)
    return HistoryAnswer(history=[_entry_answer(entry) for entry in entries])


@router.delete("/{config_id}", summary="Withdraw a configuration")
def withdraw_config(config_id: ConfigId, body: ReasonBody, context: ContextDep, principal: Submitter) -> WithdrawAnswer:
    """Lookups and bundles stop carrying it at once. The record that was the answer before it is the answer again, if
    there is one; one that was withdrawn never comes back. The history keeps both, and the reason."""
    with context.store.write() as tx:
        now = tx.configs.withdraw(config_id, who=principal.name, reason=body.reason)
    return WithdrawAnswer(withdrawn=config_id, now=_answer(now) if now is not None else None)


@router.post("/{config_id}/pin", summary="Pin a configuration")
def pin_config(config_id: ConfigId, body: ReasonBody, context: ContextDep, principal: Submitter) -> ConfigAnswer:
    """It stays the answer whatever later jobs find, until it is unpinned or withdrawn. What they find is in the
    history."""
    with context.store.write() as tx:
        return _answer(tx.configs.pin(config_id, pinned=True, who=principal.name, reason=body.reason))


@router.post("/{config_id}/unpin", summary="Unpin a configuration")
def unpin_config(config_id: ConfigId, body: ReasonBody, context: ContextDep, principal: Submitter) -> ConfigAnswer:
    """Let faster configurations of later jobs take its place again."""
    with context.store.write() as tx:
        return _answer(tx.configs.pin(config_id, pinned=False, who=principal.name, reason=body.reason))


def _answer(config: StoredConfig) -> ConfigAnswer:
    base = f"/v1/configs/{config.id}"
    return ConfigAnswer(
        id=config.id,
        pinned=config.pinned,
        job_id=config.job_id,
        record=json.loads(config.body),
        links={"self": base, "history": f"{base}/history"},
    )


def _entry_answer(entry: ConfigEntry) -> HistoryEntry:
    record = json.loads(entry.body)
    return HistoryEntry(
        config_id=entry.config_id,
        action=entry.action.value,
        who=entry.who,
        reason=entry.reason,
        at=entry.at,
        job_id=entry.job_id,
        time_ns=record["time_ns"],
        toolchain=record["toolchain"],
        config=record["config"],
    )


def _toolchain(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    return decode(text, dict[str, str], "toolchain")
