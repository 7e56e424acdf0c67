"""What Dask is told to run.

A scheduler loads the module of a task before it passes the first one on, and need not have what measuring needs: all of
it is loaded on the worker, which has it already.
"""

from __future__ import annotations


def measure_here(job_id: str, ticket: str) -> str:
    """Measure a job with the bench of this worker. Only names travel through the scheduler; spec and token do not."""
    from distributed import get_worker  # lazy: see above

    from .plugin import plugin_of  # lazy: see above
    from .run import measure  # lazy: see above

    ours = plugin_of(get_worker())
    return measure(ours.bench, job_id, ticket, ours.handover)
