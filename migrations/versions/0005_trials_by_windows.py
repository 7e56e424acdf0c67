"""Mark the trials that were the best of their search so far, and find trials and events by what pages ask for.

The page of a job then reads as much of a large job as of a small one.

Revision: 0005_trials_by_windows
Follows: 0004_workers
Date: 2026-11-23 04:05:00.000000
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005_trials_by_windows"
down_revision = "0004_workers"
branch_labels = None
depends_on = None

_trials = sa.table(
    "trials",
    sa.column("job_id", sa.String),
    sa.column("trial_id", sa.String),
    sa.column("phase", sa.String),
    sa.column("sequence", sa.Integer),
    sa.column("dtype", sa.String),
    sa.column("shape", sa.Text),
    sa.column("median_ns", sa.Float),
    sa.column("best", sa.Boolean),
)


def upgrade() -> None:
    """Add the column, fill it from the times, and make the indexes."""
    op.add_column("trials", sa.Column("best", sa.Boolean(), nullable=False, server_default=sa.false()))
    _mark(op.get_bind())
    op.create_index(
        "ix_trials_best",
        "trials",
        ["job_id", "dtype", "shape", "sequence"],
        unique=False,
        sqlite_where=sa.text("best = 1"),
        postgresql_where=sa.text("best"),
    )
    op.create_index("ix_trials_job_id_phase_sequence", "trials", ["job_id", "phase", "sequence"], unique=False)
    op.create_index("ix_trials_job_id_status_sequence", "trials", ["job_id", "status", "sequence"], unique=False)
    op.create_index("ix_events_job_id_kind_id", "events", ["job_id", "kind", "id"], unique=False)


def downgrade() -> None:
    """Drop them; what they say follows from the trials."""
    op.drop_index("ix_events_job_id_kind_id", "events")
    op.drop_index("ix_trials_job_id_status_sequence", "trials")
    op.drop_index("ix_trials_job_id_phase_sequence", "trials")
    op.drop_index("ix_trials_best", "trials")
    op.drop_column("trials", "best")


def _mark(connection: sa.Connection) -> None:
    """Screened trials that were faster than all before them of their job, shape and dtype."""
    timed = (
        sa.select(
            _trials.c.job_id,
            _trials.c.trial_id,
            _trials.c.median_ns,
            sa.func.min(_trials.c.median_ns)
            .over(
                partition_by=[_trials.c.job_id, _trials.c.dtype, _trials.c.shape],
                order_by=_trials.c.sequence,
                rows=(None, -1),
            )
            .label("before"),
        )
        .where(_trials.c.phase == "screen", _trials.c.median_ns.is_not(None))
        .subquery()
    )
    faster = sa.or_(timed.c.before.is_(None), timed.c.median_ns < timed.c.before)
    found = connection.execute(sa.select(timed.c.job_id, timed.c.trial_id).where(faster)).all()
    mark = sa.update(_trials).where(
        _trials.c.job_id == sa.bindparam("job"), _trials.c.trial_id == sa.bindparam("trial")
    )
    if found:
        connection.execute(mark.values(best=True), [{"job": job, "trial": trial} for job, trial in found])
