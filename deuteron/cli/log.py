"""What the service and its workers write to stderr."""

from __future__ import annotations

import logging


def start_logging() -> None:
    """Show deuteron's and uvicorn's own lines, and of Dask and Alembic only warnings."""
    import dask

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # Dask sets the level of its logger from here when it is imported, so a level set before would not last.
    dask.config.set({"logging": {"distributed": "warning"}})
