"""What can go wrong between a client and the service."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from deuteron.compiler.errors import DeuteronError


class ServiceUnreachable(DeuteronError):
    """The service does not answer: wrong address, not running, or the network is down."""


class DownloadError(DeuteronError):
    """A bundle could not be downloaded whole, or is not the file that the service announced."""


class ServiceError(DeuteronError):
    """The service answered with a problem document (RFC 9457)."""

    def __init__(self, message: str, *, status: int, problem: Mapping[str, object], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.problem = dict(problem)


def unreachable(url: str, error: httpx.TransportError) -> ServiceUnreachable:
    """The error for a request that got no answer."""
    if isinstance(error, httpx.TimeoutException):
        return ServiceUnreachable(f"{url} did not answer in time", hint="try again, or look at its log")
    return ServiceUnreachable(
        f"{url} does not answer: {error or type(error).__name__}",
        hint="start it with `deuteron serve`, or name another with --server",
    )


def service_error(response: httpx.Response) -> ServiceError:
    """The error for an answer with status 400 or above. The body must have been read."""
    try:
        document = response.json()
    except ValueError:
        document = None
    problem: dict[str, object] = document if isinstance(document, dict) else {}
    report = problem.get("report")
    detail = report or problem.get("detail") or response.reason_phrase
    hint = None if report else problem.get("hint")
    return ServiceError(
        f"{detail} ({response.status_code})",
        status=response.status_code,
        problem=problem,
        hint=str(hint) if hint else None,
    )
