"""Kernels, stored once per content hash."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from sqlalchemy import Connection, Row, select

from ..models import KernelRow
from .errors import NotFound
from .records import StoredKernel
from .writes import insert_unless_present, raise_counters

_TABLE = KernelRow.__table__
#: The version counter of the kernels.
KERNELS = "kernels"


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernels within one transaction."""

    connection: Connection

    def add(self, kernel: StoredKernel) -> StoredKernel:
        """Store a kernel; the one already stored under this hash wins and is returned."""
        existing = self.find(kernel.hash)
        if existing is not None:
            return existing
        if insert_unless_present(self.connection, KernelRow, asdict(kernel)):
            raise_counters(self.connection, [KERNELS])
        return self.get(kernel.hash)

    def find(self, hash: str) -> StoredKernel | None:
        """The kernel with this hash, None if it was never stored."""
        row = self.connection.execute(select(_TABLE).where(KernelRow.hash == hash)).first()
        return None if row is None else _kernel(row)

    def newest_named(self, name: str) -> StoredKernel | None:
        """The kernel that was stored last under this name."""
        query = select(_TABLE).where(KernelRow.name == name).order_by(KernelRow.created_at.desc()).limit(1)
        row = self.connection.execute(query).first()
        return None if row is None else _kernel(row)

    def hashes(self, name: str) -> set[str]:
        """Those of all texts that were stored under this name."""
        return set(self.connection.execute(select(KernelRow.hash).where(KernelRow.name == name)).scalars())

    def get(self, hash: str) -> StoredKernel:
        """Raises:
        NotFound: no kernel has this hash.
        """
        kernel = self.find(hash)
        if kernel is None:
            raise NotFound(f"there is no kernel {hash}", hint="POST its source to /v1/kernels first")
        return kernel


def _kernel(row: Row[tuple[object, ...]]) -> StoredKernel:
    return StoredKernel(**row._mapping)
