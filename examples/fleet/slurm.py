"""Workers on a Slurm cluster, one job of Slurm's for each, placed by dask-jobqueue (``pip install dask-jobqueue``).

    export DEUTERON_PUBLIC_URL=http://tuner:8642 DEUTERON_TOKEN=...     # a token with the scope worker
    python examples/fleet/slurm.py --workers 4 --gres gpu:h200:1

This process has the Dask scheduler, until it is interrupted; the jobs end with it. The service is told where it is:

    deuteron serve --scheduler tcp://THIS-HOST:8786

PBS, LSF, SGE and HTCondor have classes of their own in dask-jobqueue that take the same arguments.
"""

from __future__ import annotations

import argparse
import signal

from dask_jobqueue import SLURMCluster


def place_workers(options: argparse.Namespace) -> SLURMCluster:
    """Ask Slurm for the jobs. Each runs one worker that measures on the GPU it was given, or on the CPU without one."""
    cluster = SLURMCluster(
        # One measurement at a time.
        cores=1,
        processes=1,
        # Cores for compiling candidates while others are measured.
        job_cpu=options.cpus,
        memory=options.memory,
        walltime=options.walltime,
        queue=options.partition,
        job_extra_directives=[f"--gres={options.gres}"] if options.gres else [],
        worker_extra_args=["--no-dashboard", "--preload", "deuteron.server.dispatch.preload"],
        scheduler_options={"port": options.port, "dashboard": False},
    )
    cluster.scale(jobs=options.workers)
    return cluster


def main() -> None:
    """Place the workers and wait for Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description="deuteron's workers as jobs of Slurm")
    parser.add_argument("--workers", type=int, default=1, help="jobs to submit")
    parser.add_argument("--port", type=int, default=8786, help="of the scheduler")
    parser.add_argument("--gres", help="what each job asks for, such as gpu:h200:1")
    parser.add_argument("--partition", help="Slurm's partition")
    parser.add_argument("--walltime", default="08:00:00")
    parser.add_argument("--cpus", type=int, default=8)
    parser.add_argument("--memory", default="32GB")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with place_workers(options) as cluster:
        print(f"{options.workers} jobs; the service needs --scheduler {cluster.scheduler_address}", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("ending the jobs", flush=True)


if __name__ == "__main__":
    main()
