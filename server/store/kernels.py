"""Kernels, stored once per content hash."""

from __future__ import annotations

import unicodedata
from dataclasses import asdict, dataclass, fields

from sqlalchemy import Connection, Row, select, update

from ..models import CounterRow, KernelRow
from .errors import NotFound
from .records import StoredKernel
from .writes import insert_unless_present, raise_counters

_TABLE = KernelRow.__table__
_KERNEL = select(*(_TABLE.c[item.name] for item in fields(StoredKernel)))
#: The version counter of the kernels, and of what their names stand for.
KERNELS = "kernels"


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernels within one transaction."""

    connection: Connection

    def add(self, kernel: StoredKernel) -> StoredKernel:
        """Store a kernel, which is what its name stands for from now on. The one already stored under this hash wins
        and is returned."""
        newest = self.newest_named(kernel.name)
        if newest is not None and newest.hash == kernel.hash:
            return newest
        insert_unless_present(self.connection, KernelRow, asdict(kernel))
        raise_counters(self.connection, [KERNELS])
        number = select(CounterRow.value).where(CounterRow.name == KERNELS).scalar_subquery()
        self.connection.execute(update(KernelRow).where(KernelRow.hash == kernel.hash).values(stored_number=number))
        return self.get(kernel.hash)

    def keep(self, kernel: StoredKernel) -> StoredKernel:
        """As :meth:`add`, but the name of a kernel that is there already goes on standing for what it did."""
        return self.find(kernel.hash) or self.add(kernel)

    def find(self, hash: str) -> StoredKernel | None:
        """The kernel with this hash, None if it was never stored."""
        row = self.connection.execute(_KERNEL.where(KernelRow.hash == hash)).first()
        return None if row is None else _kernel(row)

    def newest_named(self, name: str) -> StoredKernel | None:
        """The kernel that was stored last under this name. One name may be written in several ways, as in Python."""
        name = unicodedata.normalize("NFKC", name)
        newest_first = KernelRow.stored_number.desc(), KernelRow.created_at.desc()
        row = self.connection.execute(_KERNEL.where(KernelRow.name == name).order_by(*newest_first).limit(1)).first()
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
