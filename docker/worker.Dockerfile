# A worker: compiles variants and measures them on this machine's GPUs.
#   docker build -f docker/worker.Dockerfile -t deuteron-worker .

# "base" and not "devel": deuteron brings its own code generator, ptxas, nvJitLink and CUPTI come as wheels, and libcuda
# is mounted by the NVIDIA container runtime. The image refuses drivers older than CUDA 13, as cuda-python 13 would.
FROM nvidia/cuda:13.0.1-base-ubuntu24.04 AS base
# Ubuntu removes old versions of a package from its archive, so pinning them breaks the build within weeks; the release
# of the base image pins Python to 3.12.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*

FROM base AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md ./
COPY compiler compiler
COPY deuteron deuteron
COPY migrations migrations
COPY profiler profiler
COPY server server
COPY tuner tuner
RUN python3 -m venv /opt/deuteron \
    && /opt/deuteron/bin/pip install --no-cache-dir --constraint constraints.txt '.[server,cuda]'

FROM base
RUN groupadd --system --gid 10001 deuteron \
    && useradd --system --uid 10001 --gid deuteron --home-dir /var/lib/deuteron deuteron \
    && install --directory --owner=deuteron --group=deuteron --mode=0700 /var/lib/deuteron
COPY --from=build /opt/deuteron /opt/deuteron
ENV PATH=/opt/deuteron/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    DEUTERON_HOME=/var/lib/deuteron \
    DEUTERON_SCHEDULER=tcp://scheduler:8786 \
    # compute: launching; utility: NVML, from which clocks and power are read.
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
# By number: a host that checks for root (runAsNonRoot) cannot resolve names.
USER 10001:10001
WORKDIR /var/lib/deuteron
# The spool: results that the service has not acknowledged yet survive a restart of the container.
VOLUME /var/lib/deuteron
# A worker listens on no fixed port; it is of use while it can reach its scheduler.
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python3", "-c", "import os, socket; host, port = os.environ['DEUTERON_SCHEDULER'].split('//')[1].rsplit(':', 1); socket.create_connection((host.strip('[]'), int(port)), 4).close()"]
STOPSIGNAL SIGTERM
# exec: the worker itself is process 1 and gets the signals.
CMD ["sh", "-c", "exec deuteron worker \"$DEUTERON_SCHEDULER\""]
