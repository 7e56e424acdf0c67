"""Keep every record that was ever stored, with what became of it; configurations can be pinned.

What is stored now becomes the beginning of the history.

Revision: 0003_config_history
Follows: 0002
Date: 2026-11-22 18:35:00.000000
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003_config_history"
down_revision = "0002"
branch_labels = None
depends_on = None

_KEY = ("kernel_hash", "device_key", "dtype", "shape_key", "toolchain_key")
_KEPT = ("job_id", "low_ns", "high_ns", "body")


def _key_text(length: int) -> sa.String:
    return sa.String(length).with_variant(sa.String(length, collation="C"), "postgresql")


def upgrade() -> None:
    """Make the table, fill it from the configurations, and add the column."""
    op.create_table(
        "config_history",
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("config_id", sa.String(length=36), nullable=False),
        sa.Column("kernel_hash", _key_text(64), nullable=False),
        sa.Column("device_key", _key_text(200), nullable=False),
        sa.Column("dtype", _key_text(16), nullable=False),
        sa.Column("shape_key", _key_text(400), nullable=False),
        sa.Column("toolchain_key", _key_text(1000), nullable=False),
        sa.Column("action", sa.String(length=16), nullable=False),
        sa.Column("who", sa.String(length=200), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=True),
        sa.Column("low_ns", sa.Float(), nullable=False),
        sa.Column("high_ns", sa.Float(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("number", name="pk_config_history"),
    )
    op.create_index("ix_config_history_key", "config_history", list(_KEY), unique=False)
    op.create_index("ix_config_history_job_id", "config_history", ["job_id"], unique=False)
    op.create_index("ix_config_history_config_id", "config_history", ["config_id"], unique=False)
    copied = ", ".join((*_KEY, *_KEPT))
    op.execute(
        f"INSERT INTO config_history (config_id, {copied}, at, action, who, reason) "
        f"SELECT id, {copied}, created_at, 'stored', '', '' FROM configs ORDER BY created_at, id"
    )
    op.add_column("configs", sa.Column("pinned", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    """Drop both: the newest state of every configuration stays."""
    op.drop_column("configs", "pinned")
    op.drop_index("ix_config_history_config_id", "config_history")
    op.drop_index("ix_config_history_job_id", "config_history")
    op.drop_index("ix_config_history_key", "config_history")
    op.drop_table("config_history")
