"""Pages for people: jobs live, a job's convergence, stored configurations."""

from __future__ import annotations

from fastapi import FastAPI

from . import configs, docs, jobs, login, static, trials


def install_pages(app: FastAPI) -> None:
    """Add the pages to the application. They use the same dependencies as the API and nothing else."""
    for module in (jobs, trials, configs, docs, login, static):
        app.include_router(module.router)
