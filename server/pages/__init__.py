"""Pages for people: jobs live, a job's convergence, stored configurations and their history, coverage, workers."""

from __future__ import annotations

from fastapi import FastAPI

from . import charts, code, comparison, configs, docs, fleet, jobs, login, parameters, static, trial_list, trials


def install_pages(app: FastAPI) -> None:
    """Add the pages to the application. They use the same dependencies as the API and nothing else."""
    for module in (jobs, charts, trial_list, trials, code, parameters, comparison, configs, fleet, docs, login, static):
        app.include_router(module.router)
