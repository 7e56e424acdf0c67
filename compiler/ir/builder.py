"""Appending operations to blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from ..errors import CompilationError, Location
from .core import Block, Op

OpT = TypeVar("OpT", bound=Op)


class Builder:
    """Appends operations at the end of ``block`` and stamps them with ``location``."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.location: Location | None = None

    def emit(self, op: OpT) -> OpT:
        """Append ``op`` and return it."""
        op.location = self.location if op.location is None else op.location
        self.block.ops.append(op)
        return op

    @contextmanager
    def into(self, block: Block) -> Iterator[Block]:
        """Emit into ``block`` for a while."""
        outer, self.block = self.block, block
        try:
            yield block
        finally:
            self.block = outer

    def locate(self, error: CompilationError) -> CompilationError:
        """Give ``error`` the current location if it has none."""
        if error.location is None:
            error.location = self.location
        return error
