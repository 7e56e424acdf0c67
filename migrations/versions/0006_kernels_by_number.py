"""Number kernels as they are stored: a name stands for the text that was stored last, also one stored again.

The time of the first storing told neither that, nor anything while a clock was wrong.

Revision: 0006_kernels_by_number
Follows: 0005_trials_by_windows
Date: 2026-11-28 05:00:00.000000
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006_kernels_by_number"
down_revision = "0005_trials_by_windows"
branch_labels = None
depends_on = None

_kernels = sa.table(
    "kernels",
    sa.column("hash", sa.String),
    sa.column("created_at", sa.DateTime(timezone=True)),
    sa.column("stored_number", sa.BigInteger),
)
_counters = sa.table("counters", sa.column("name", sa.String), sa.column("value", sa.BigInteger))


def upgrade() -> None:
    """Add the column and number what is stored by the time when it was."""
    op.add_column("kernels", sa.Column("stored_number", sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    _number(op.get_bind())


def downgrade() -> None:
    """Drop it: names stand for the text whose first storing is the last one."""
    op.drop_column("kernels", "stored_number")


def _number(connection: sa.Connection) -> None:
    hashes = connection.execute(sa.select(_kernels.c.hash).order_by(_kernels.c.created_at, _kernels.c.hash)).scalars()
    numbered = [{"kernel": hash, "number": number} for number, hash in enumerate(hashes, 1)]
    if not numbered:
        return
    number = sa.update(_kernels).where(_kernels.c.hash == sa.bindparam("kernel"))
    connection.execute(number.values(stored_number=sa.bindparam("number")), numbered)
    _count_from(connection, len(numbered))


def _count_from(connection: sa.Connection, last: int) -> None:
    """The counter gives the next number: it is above all that were given."""
    counter = _counters.c.name == "kernels"
    value = connection.scalar(sa.select(_counters.c.value).where(counter))
    if value is None:
        connection.execute(sa.insert(_counters).values(name="kernels", value=last))
    elif value < last:
        connection.execute(sa.update(_counters).where(counter).values(value=last))
