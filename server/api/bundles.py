"""/v1/bundles: everything a machine without a network needs, as one file."""

from __future__ import annotations

from typing import Annotated, Any

from anyio import to_thread
from fastapi import Path as PathParameter
from fastapi import Query, Request, Response
from fastapi.responses import FileResponse

from ..auth import Reader
from ..bundles import BundleFile
from ..caching import ASK_AGAIN, FOR_EVER
from ..context import ContextDep, ServiceContext
from ..problems import HttpProblem
from ..read_through import known_kernel
from ..resolving import resolve_device, resolve_kernel
from ..sending import accepts_gzip, send_file, sent_before
from ..store import ServiceStore, Transaction
from ..upstream import STATE, Asked, Part, Upstream, patience_in, services_in
from .routes import make_router
from .schemas.configs import PiecesAnswer

router = make_router("bundles", "/v1/bundles")

KernelQuery = Annotated[str | None, Query(description="Kernel hash or name; all if left out.")]
DeviceQuery = Annotated[str | None, Query(description="Device key or name; all if left out.")]

_MEDIA_TYPE = "application/x-ndjson"
_FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {_MEDIA_TYPE: {}}, "description": "The bundle."},
    206: {"description": "The part of the bundle that `Range` asked for."},
    304: {"description": "`If-None-Match` names this bundle: you have it."},
}
_LIST: dict[int | str, dict[str, Any]] = {
    206: {"description": "The part of the list that `Range` asked for."},
    304: {"description": "`If-None-Match` names this list: you have it."},
}


@router.get("/latest", summary="Download the current bundle", response_class=FileResponse, responses=_FILE)
async def latest_bundle(
    request: Request, context: ContextDep, _reader: Reader, kernel: KernelQuery = None, device: DeviceQuery = None
) -> Response:
    """The ETag is the sha256 of the file, so `If-None-Match` costs nothing and a download can be checked; that of the
    gzip form, sent to who accepts it, ends in `-gzip`. `Content-Location` is an address where exactly this file
    stays. With `kernel`, a service that has an upstream adds what that one has besides; `Deuteron-Upstream` says
    whether it was `reached`, `unreachable` or `refused`. 404 for a kernel of which nothing was ever stored."""
    bundle, said = await _current(request, context, kernel, device)
    answer = _send(request, bundle, ASK_AGAIN)
    answer.headers.update(said)
    return answer


@router.get(
    "/latest/pieces",
    summary="List the pieces of the current bundle",
    response_model=PiecesAnswer,
    responses=_LIST,
)
async def latest_pieces(
    request: Request, context: ContextDep, _reader: Reader, kernel: KernelQuery = None, device: DeviceQuery = None
) -> Response:
    """By these a client that has an older bundle fetches what it lacks, with `Range` on the bundle's own address."""
    bundle, _said = await _current(request, context, kernel, device)
    return _send_pieces(request, bundle, ASK_AGAIN)


async def _current(
    request: Request, context: ServiceContext, kernel: str | None, device: str | None
) -> tuple[BundleFile, dict[str, str]]:
    """The bundle of a selection as it is now, and the header that says what became of asking the upstream."""
    asked = None
    if kernel and context.upstream is not None:
        # Not in the thread that builds: of services in a loop each would wait for the other's.
        via = services_in(request.headers)
        patience_s = patience_in(request.headers)
        asked = await to_thread.run_sync(_pass_on, context.store, context.upstream, kernel, via, patience_s)
    more = asked.part if asked is not None else Part()

    def find() -> BundleFile:
        with context.store.read() as tx:
            kernel_hash = (more.kernel_hash or resolve_kernel(tx, kernel)) if kernel else None
            there = device in more.devices
            device_key = device if there or not device else _device_key(tx, device)
        return context.bundles.latest(kernel_hash, device_key, more)

    said: dict[str, str] = {} if asked is None else {STATE: asked.state}
    try:
        return await context.bundles.take(find), said
    except HttpProblem as problem:
        problem.headers = {**(problem.headers or {}), **said}
        raise


@router.get("/{sha256}", summary="Download one bundle", response_class=FileResponse, responses=_FILE)
def get_bundle(
    sha256: Annotated[str, PathParameter(pattern="^[0-9a-f]{64}$")],
    request: Request,
    context: ContextDep,
    _reader: Reader,
) -> Response:
    """What is under this address never changes."""
    bundle = context.bundles.find(sha256)
    return _send(request, bundle, FOR_EVER)


@router.get("/{sha256}/pieces", summary="List the pieces of one bundle", response_model=PiecesAnswer, responses=_LIST)
def bundle_pieces(
    sha256: Annotated[str, PathParameter(pattern="^[0-9a-f]{64}$")],
    request: Request,
    context: ContextDep,
    _reader: Reader,
) -> Response:
    """What is under this address never changes."""
    return _send_pieces(request, context.bundles.find(sha256), FOR_EVER)


def _pass_on(
    store: ServiceStore, upstream: Upstream, kernel: str, via: tuple[str, ...], patience_s: float
) -> Asked | None:
    with store.read() as tx:
        name = known_kernel(tx, kernel)
    return upstream.pass_on(name, via, patience_s)


def _device_key(tx: Transaction, device: str) -> str:
    """Raises:
    HttpProblem: 404, no such device was seen; 422, the name stands for several.
    """
    _fingerprint, keys = resolve_device(tx, device)
    if len(keys) == 1:
        return keys[0]
    if not keys:
        raise HttpProblem(
            404,
            "device-not-found",
            f"no device {device!r} has been seen by this service",
            hint="GET /v1/devices lists them",
        )
    raise HttpProblem(
        422,
        "ambiguous-device",
        f"{len(keys)} devices answer to {device!r}",
        hint="use a key: " + ", ".join(keys),
    )


def _send(request: Request, bundle: BundleFile, cache_control: str) -> Response:
    packed = bundle.compressed if accepts_gzip(request) else None
    etag = f'"{bundle.sha256}"' if packed is None else f'"{bundle.sha256}-gzip"'
    headers = {
        "ETag": etag,
        "Cache-Control": cache_control,
        "Content-Location": f"/v1/bundles/{bundle.sha256}",
        "Vary": "Accept-Encoding",
    }
    if (answer := sent_before(request, headers, f'"{bundle.sha256}"')) is not None:
        return answer
    if packed is not None:
        return send_file(request, packed, media_type=_MEDIA_TYPE, headers={**headers, "Content-Encoding": "gzip"})
    name = f"deuteron-{bundle.sha256[:12]}.bundle"
    return send_file(request, bundle.path, media_type=_MEDIA_TYPE, headers=headers, filename=name)


def _send_pieces(request: Request, bundle: BundleFile, cache_control: str) -> Response:
    """Raises:
    HttpProblem: 404, the bundle has no list of pieces.
    """
    etag = f'"{bundle.sha256}-pieces"'
    headers = {"ETag": etag, "Cache-Control": cache_control}
    if (answer := sent_before(request, headers)) is not None:
        return answer
    if bundle.pieces is None:
        raise HttpProblem(
            404,
            "pieces-not-found",
            f"bundle {bundle.sha256} has no list of pieces: an older version built it",
            hint=f"GET /v1/bundles/{bundle.sha256} sends it whole",
        )
    return send_file(request, bundle.pieces, media_type="application/json", headers=headers)
