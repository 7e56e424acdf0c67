"""Keep what bounds a trial, and the device that a job ran on; find jobs by their kernel's name.

Searches start from earlier ones of the same kernel: those are found by name and device.

Revision: 0002
Follows: 0001
Date: 2026-11-22 17:45:00.000000
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_jobs = sa.table("jobs", sa.column("id", sa.String), sa.column("device_key", sa.String))
_events = sa.table(
    "events", sa.column("job_id", sa.String), sa.column("kind", sa.String), sa.column("body", sa.Text), sa.column("id")
)


def upgrade() -> None:
    """Add both columns, empty, but for the devices of jobs that ran."""
    op.add_column("trials", sa.Column("bound", sa.String(length=20), nullable=True))
    op.add_column("jobs", sa.Column("device_key", sa.String(length=200), nullable=True))
    op.create_index("ix_jobs_kernel_name", "jobs", ["kernel_name"], unique=False)
    _name_devices(op.get_bind())


def downgrade() -> None:
    """Drop both columns; trials keep their measurements in their text."""
    op.drop_index("ix_jobs_kernel_name", "jobs")
    op.drop_column("jobs", "device_key")
    op.drop_column("trials", "bound")


def _name_devices(connection: sa.Connection) -> None:
    """The device of jobs that ran already, from their first event; the latest run of a job counts."""
    started = sa.select(_events.c.job_id, _events.c.body).where(_events.c.kind == "job_started").order_by(_events.c.id)
    for job_id, body in connection.execute(started).all():
        device = json.loads(body).get("device")
        if isinstance(device, str) and len(device) <= 200:
            connection.execute(sa.update(_jobs).where(_jobs.c.id == job_id).values(device_key=device))
