"""Know workers by names that outlive their processes, and which of them are drained.

Revision: 0004_workers
Follows: 0003_config_history
Date: 2026-11-23 03:50:00.000000
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004_workers"
down_revision = "0003_config_history"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table, empty: workers announce themselves, and who dispatches sees them."""
    op.create_table(
        "workers",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("process", sa.String(length=200), nullable=False),
        sa.Column("device_key", sa.String(length=200), nullable=True),
        sa.Column("toolchain", sa.Text(), nullable=True),
        sa.Column("connected", sa.Boolean(), nullable=False),
        sa.Column("first_seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column("drained_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("drained_by", sa.String(length=200), nullable=True),
        sa.PrimaryKeyConstraint("name", name="pk_workers"),
    )


def downgrade() -> None:
    """Drop the table: an older service gives jobs to all of its workers."""
    op.drop_table("workers")
