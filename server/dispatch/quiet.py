"""Dask's scheduler and worker without their HTTP servers, which would answer anyone on this machine."""

from __future__ import annotations

from typing import Any

from distributed import Scheduler, Worker

#: Between two signs of life of a worker. Its keeper sees it end at once, and the service learns nothing from them.
HEARTBEAT_S = 10.0


class QuietScheduler(Scheduler):
    """A scheduler that listens for Dask's own connections only, and does not ask for a heartbeat every half second."""

    def heartbeat_worker(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        """What a worker says of itself, and when it is to do so again."""
        answer: dict[str, Any] = super().heartbeat_worker(*arguments, **options)
        if "heartbeat-interval" in answer:  # not where the worker is unknown
            answer["heartbeat-interval"] = HEARTBEAT_S
        return answer

    def start_http_server(self, *_arguments: object, **_options: object) -> None:
        """Starts none."""


class QuietWorker(Worker):
    """A worker that listens for Dask's own connections only."""

    def start_http_server(self, *_arguments: object, **_options: object) -> None:
        """Starts none."""
