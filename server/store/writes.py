"""One statement that several concepts share."""

from __future__ import annotations

from sqlalchemy import Connection, insert
from sqlalchemy.exc import IntegrityError

from ..models import Base


def insert_unless_present(connection: Connection, row: type[Base], values: dict[str, object]) -> bool:
    """Insert a row whose key another server may be inserting right now; False when it won.

    The savepoint keeps the surrounding transaction usable: PostgreSQL aborts one on any error.
    """
    try:
        with connection.begin_nested():
            connection.execute(insert(row).values(**values))
    except IntegrityError:
        return False
    return True
