"""Create the tables of kernels, jobs, trials, configs, devices and tokens.

Revision: 0001
Follows: nothing
Date: 2026-11-21 04:17:43.867268
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "configs",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column(
            "kernel_hash",
            sa.String(length=64).with_variant(sa.String(length=64, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("kernel_name", sa.String(length=200), nullable=False),
        sa.Column(
            "device_key",
            sa.String(length=200).with_variant(sa.String(length=200, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("device_name", sa.String(length=200), nullable=False),
        sa.Column(
            "dtype",
            sa.String(length=16).with_variant(sa.String(length=16, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column(
            "shape_key",
            sa.String(length=400).with_variant(sa.String(length=400, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column(
            "toolchain_key",
            sa.String(length=1000).with_variant(sa.String(length=1000, collation="C"), "postgresql"),
            nullable=False,
        ),
        sa.Column("job_id", sa.String(length=36), nullable=True),
        sa.Column("checked", sa.Boolean(), nullable=False),
        sa.Column("low_ns", sa.Float(), nullable=False),
        sa.Column("high_ns", sa.Float(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_configs"),
        sa.UniqueConstraint(
            "kernel_hash",
            "device_key",
            "dtype",
            "shape_key",
            "toolchain_key",
            name="uq_configs_key",
        ),
    )
    op.create_index("ix_configs_device_key", "configs", ["device_key"], unique=False)
    op.create_index("ix_configs_kernel_name", "configs", ["kernel_name"], unique=False)

    op.create_table(
        "counters",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_counters"),
    )
    op.create_table(
        "devices",
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("worker", sa.String(length=200), nullable=False),
        sa.Column("first_seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_seen", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_devices"),
    )
    op.create_table(
        "jobs",
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer(), "sqlite"),
            autoincrement=True,
            nullable=False,
        ),
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("kernel_name", sa.String(length=200), nullable=False),
        sa.Column("kernel_hash", sa.String(length=64), nullable=False),
        sa.Column("device", sa.String(length=100), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("trials_total", sa.Integer(), nullable=False),
        sa.Column("trials_done", sa.Integer(), nullable=False),
        sa.Column("screened", sa.Integer(), nullable=False),
        sa.Column("last_event", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("claim_id", sa.String(length=80), nullable=True),
        sa.Column("worker", sa.String(length=200), nullable=True),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("profile_sha256", sa.String(length=64), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("number", name="pk_jobs"),
        sa.UniqueConstraint("id", name="uq_jobs_id"),
    )
    op.create_index("ix_jobs_kernel_hash", "jobs", ["kernel_hash"], unique=False)
    op.create_index("ix_jobs_state", "jobs", ["state"], unique=False)

    op.create_table(
        "kernels",
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("filename", sa.String(length=400), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_kernels"),
    )
    op.create_index("ix_kernels_name", "kernels", ["name"], unique=False)

    op.create_table(
        "tokens",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.String(length=100), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("hash", name="uq_tokens_hash"),
    )
    op.create_table(
        "events",
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(length=40), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("claim_id", sa.String(length=80), nullable=True),
        sa.Column("sequence", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_events_job_id_jobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "id", name="pk_events"),
        sa.UniqueConstraint("job_id", "claim_id", "sequence", name="uq_events_delivery"),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("owner", sa.String(length=36), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("body_sha256", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_idempotency_keys_job_id_jobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("owner", "key", name="pk_idempotency_keys"),
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"], unique=False)

    op.create_table(
        "trials",
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("trial_id", sa.String(length=64), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("dtype", sa.String(length=16), nullable=False),
        sa.Column("shape", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("median_ns", sa.Float(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_trials_job_id_jobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "trial_id", name="pk_trials"),
    )
    op.create_index("ix_trials_job_id_sequence", "trials", ["job_id", "sequence"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_trials_job_id_sequence", "trials")

    op.drop_table("trials")
    op.drop_index("ix_idempotency_keys_created_at", "idempotency_keys")

    op.drop_table("idempotency_keys")
    op.drop_table("events")
    op.drop_table("tokens")
    op.drop_index("ix_kernels_name", "kernels")

    op.drop_table("kernels")
    op.drop_index("ix_jobs_state", "jobs")
    op.drop_index("ix_jobs_kernel_hash", "jobs")

    op.drop_table("jobs")
    op.drop_table("devices")
    op.drop_table("counters")
    op.drop_index("ix_configs_kernel_name", "configs")
    op.drop_index("ix_configs_device_key", "configs")

    op.drop_table("configs")
