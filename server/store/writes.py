"""Statements that several concepts share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, insert, update
from sqlalchemy.exc import IntegrityError

from ..models import Base, CounterRow
from .errors import TooLong


def fitting(row: type[Base], values: Mapping[str, object]) -> dict[str, object]:
    """The values of a row. PostgreSQL refuses texts that are longer than their columns and SQLite keeps them, which no
    backup could then bring to PostgreSQL: here both refuse.

    Raises:
        TooLong: a text is too long; the message names it.
    """
    for name, value in values.items():
        most = getattr(row.__table__.columns[name].type, "length", None)
        if most is not None and isinstance(value, str) and len(value) > most:
            raise TooLong(f"{name}: {value[:40]!r}... has {len(value)} characters", hint=f"at most {most}")
    return dict(values)


def insert_unless_present(connection: Connection, row: type[Base], values: dict[str, object]) -> bool:
    """Insert a row whose key another server may be inserting right now; False when it won.

    The savepoint keeps the surrounding transaction usable: PostgreSQL aborts one on any error. Raises as
    :func:`fitting`.
    """
    values = fitting(row, values)
    try:
        with connection.begin_nested():
            connection.execute(insert(row).values(**values))
    except IntegrityError:
        return False
    return True


def raise_counters(connection: Connection, names: Iterable[str]) -> None:
    """Tell that what these version counters stand for has changed."""
    # Sorted, so that two writers lock the rows in the same order.
    for name in sorted(set(names)):
        _raise_counter(connection, name)


def _raise_counter(connection: Connection, name: str) -> None:
    raised = connection.execute(update(CounterRow).where(CounterRow.name == name).values(value=CounterRow.value + 1))
    if raised.rowcount == 0 and not insert_unless_present(connection, CounterRow, {"name": name, "value": 1}):
        _raise_counter(connection, name)
