# The service: REST API, pages, dispatch. Also runs the Dask scheduler, which must be able to import deuteron.
#   docker build -f docker/server.Dockerfile -t deuteron-server .

FROM python:3.12.8-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md ./
COPY compiler compiler
COPY deuteron deuteron
COPY migrations migrations
COPY profiler profiler
COPY server server
COPY tuner tuner
# The versions that the tests ran with. What builds stays in this stage.
RUN python -m venv /opt/deuteron \
    && /opt/deuteron/bin/pip install --no-cache-dir --constraint constraints.txt '.[server,postgres,learn]'

FROM python:3.12.8-slim-bookworm
# What LightGBM is linked to, which grows the trees that predict. Debian removes old versions of a package from its
# archive, so pinning it breaks the build within weeks; the base image pins the release.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/*
# A fixed id, so that files on a volume have the same owner in every version of the image.
RUN groupadd --system --gid 10001 deuteron \
    && useradd --system --uid 10001 --gid deuteron --home-dir /var/lib/deuteron deuteron \
    && install --directory --owner=deuteron --group=deuteron --mode=0700 /var/lib/deuteron
COPY --from=build /opt/deuteron /opt/deuteron
ENV PATH=/opt/deuteron/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    DEUTERON_HOME=/var/lib/deuteron \
    # Beyond loopback the service demands tokens; see docs/docker.md for the first one.
    DEUTERON_HOST=0.0.0.0 \
    DEUTERON_PORT=8642
# By number: a host that checks for root (runAsNonRoot) cannot resolve names.
USER 10001:10001
WORKDIR /var/lib/deuteron
VOLUME /var/lib/deuteron
EXPOSE 8642
# Ready means: the database answers and has the schema of this version. The slim image has no curl. Who listens at every
# address also does at loopback.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; host = os.environ['DEUTERON_HOST'].strip('[]'); host = {'0.0.0.0': '127.0.0.1', '::': '::1'}.get(host, host); r.urlopen('http://%s:%s/readyz' % ('[%s]' % host if ':' in host else host, os.environ['DEUTERON_PORT']), timeout=4)"]
# SIGTERM ends the streams of watchers and hands running jobs back.
STOPSIGNAL SIGTERM
CMD ["deuteron", "serve"]
