"""The HTTP client that the command line uses; programs may use it too."""

from __future__ import annotations

from deuteron.tuner.http import ServiceError, ServiceUnreachable, StrangeAnswer

from .answers import BundleDownload, LookupResult, RemoteEvent, RemoteJob, RemoteWorker
from .client import Client
from .download import DownloadError

__all__ = [
    "BundleDownload",
    "Client",
    "DownloadError",
    "LookupResult",
    "RemoteEvent",
    "RemoteJob",
    "RemoteWorker",
    "ServiceError",
    "ServiceUnreachable",
    "StrangeAnswer",
]
