"""Dask's scheduler and worker without their HTTP servers, which would answer anyone on this machine."""

from __future__ import annotations

from distributed import Scheduler, Worker


class QuietScheduler(Scheduler):
    """A scheduler that listens for Dask's own connections only."""

    def start_http_server(self, *_arguments: object, **_options: object) -> None:
        """Starts none."""


class QuietWorker(Worker):
    """A worker that listens for Dask's own connections only."""

    def start_http_server(self, *_arguments: object, **_options: object) -> None:
        """Starts none."""
