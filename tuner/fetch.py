"""One GET to a service that may be slow or hostile: it ends in time and within its size whatever that one sends.

Requests run in an event loop of their own thread, where a deadline cuts off every wait: for a name, a connection, a
head that dribbles, or pieces of a body that decode to nothing. Threads that wait for an answer hold nothing of it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import httpx

from .http import (
    MOST_ERROR_BYTES,
    ServiceUnreachable,
    authorization,
    error_body,
    ignores_proxy,
    is_header,
    service_error,
    unreachable,
)
from .http_body import BodyDecoder

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """``head_s``: until the head of an answer is there, connection included; ``total_s``: until all of it is;
    ``pause_s``: between pieces of its body; ``most_bytes``: of its body, decoded; ``redirects``: how many are
    followed."""

    connect_s: float
    head_s: float
    total_s: float
    most_bytes: int
    pause_s: float | None = None
    redirects: int = 0


class Sink(Protocol):
    """What a body is written to."""

    def write(self, piece: bytes, /) -> object:
        """Take the next bytes of it."""

    def flush(self) -> object:
        """There are no more."""


class Fetcher:
    """Gets things of the service at ``url``, with ``token``. Safe to share between threads."""

    def __init__(self, url: str, limits: FetchLimits, *, token: str = "") -> None:
        self.url = url
        self._limits = limits
        self._headers = {"Accept-Encoding": "gzip", **authorization(token)}
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: httpx.AsyncClient | None = None

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run ``work``, which calls :meth:`get`, in the loop."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run, args=(self._loop,), name="deuteron-fetch", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """End what runs, and close the connections."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is None:
            return
        asyncio.run_coroutine_threadsafe(self._end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)

    async def _end(self) -> None:
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()

    async def get(self, path: str, params: Mapping[str, str], headers: Mapping[str, str], file: Sink) -> Answered:
        """Ask for ``path`` and write the body to ``file``, decoded.

        Raises:
            ServiceUnreachable: no answer, or not in time.
            ServiceError: the answer is a refusal.
            BodyRefused: the body is too large, or encoded otherwise than once in gzip.
        """
        limits = self._limits
        try:
            async with asyncio.timeout(limits.total_s), self._answer(path, params, headers) as response:
                encoding = response.headers.get("Content-Encoding", "")
                if response.is_error:
                    raise service_error(response, await _error_body(encoding, response))
                body = BodyDecoder(encoding, limits.most_bytes)
                async for piece in response.aiter_raw():
                    file.write(body.plain(piece))
                file.flush()
                return Answered(response.status_code, response.headers)
        except TimeoutError:
            raise ServiceUnreachable(f"{self.url} did not answer in time") from None
        except httpx.RequestError as error:
            raise unreachable(self.url, error) from None

    @asynccontextmanager
    async def _answer(
        self, path: str, params: Mapping[str, str], headers: Mapping[str, str]
    ) -> AsyncIterator[httpx.Response]:
        if self._client is None:
            self._client = self._connected()
        # Of an address that has a query of its own httpx would drop that for parameters that are empty.
        request = self._client.build_request("GET", path, params=params or None, headers=headers)
        for _ in range(self._limits.redirects + 1):
            async with asyncio.timeout(self._limits.head_s):
                response = await self._client.send(request, stream=True)
            try:
                # Followed here: httpx would read and decode the body of a redirect without a limit.
                if response.next_request is None or not self._limits.redirects:
                    yield response
                    return
            finally:
                await response.aclose()
            request = response.next_request
        raise ServiceUnreachable(f"{self.url} redirects more than {self._limits.redirects} times")

    def _connected(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=self.url,
            headers=self._headers,
            timeout=httpx.Timeout(self._limits.pause_s or self._limits.total_s, connect=self._limits.connect_s),
            trust_env=not ignores_proxy(self.url),
        )


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


async def _error_body(encoding: str, response: httpx.Response) -> bytes:
    pieces = list[bytes]()
    async for piece in response.aiter_raw():
        pieces.append(piece)
        if sum(map(len, pieces)) > MOST_ERROR_BYTES:
            break
    return error_body(encoding, pieces)


@dataclass(frozen=True, slots=True)
class Answered:
    """The head of an answer whose body was written."""

    status: int
    headers: Mapping[str, str]

    @property
    def etag(self) -> str:
        """The ETag to ask with again; empty where there is none, or one that no request can carry."""
        found = self.headers.get("ETag", "")
        return found if is_header(found) else ""
