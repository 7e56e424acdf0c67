"""Servers whose answers a test writes by hand, byte by byte."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

from answering import AnsweringServer

Script = Callable[[BaseHTTPRequestHandler, int], None]


class Scripted(AnsweringServer):
    """A server whose answers a test writes by hand, byte by byte: ``script`` is told the number of the request."""

    def __init__(self, script: Script) -> None:
        self.requests: list[tuple[str, dict[str, str]]] = []

        def answer(handler: BaseHTTPRequestHandler) -> None:
            self.requests.append((handler.path, {k.lower(): v for k, v in handler.headers.items()}))
            script(handler, len(self.requests))

        super().__init__(answer)
