# One image, one process, one node. Every Python package is installed with a hash from requirements/. pip installs uv from
# the package index, so the build needs no image except the Python base image. A registry may move a tag: a release also
# names the digest (.github/workflows/release.yml).
ARG PYTHON_IMAGE=python:3.13-slim-trixie

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore \
    UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_PYTHON_DOWNLOADS=never
WORKDIR /src

COPY requirements/uv.txt requirements/
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements/uv.txt

# A compiler for sidecar/protocol/_records.pyx. Debian signs its packages, and only the build stage has them.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

# The pins come before the sources, so an edit of the code does not change this layer.
COPY requirements/runtime.txt requirements/
RUN --mount=type=cache,target=/root/.cache/uv \
    uv venv --no-project /app/.venv \
    && uv pip install --python /app/.venv --no-deps --require-hashes -r requirements/runtime.txt

# dev.txt is only read for the hashes of the build backend; no image contains the development tools.
COPY requirements/dev.txt requirements/
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY metadata metadata
COPY sidecar sidecar
RUN --mount=type=cache,target=/root/.cache/uv \
    uv build --wheel --out-dir /dist --build-constraints requirements/dev.txt --require-hashes \
    && uv pip install --python /app/.venv --no-deps /dist/*.whl

# `docker build --target pipeline`: the jobs on Spark, with a Java runtime and every jar, so that nothing is downloaded
# when they run. The runtime is Debian's, because Spark needs a module that small runtimes lack.
FROM build AS pipeline-build
COPY requirements/pipeline.txt requirements/
RUN --mount=type=cache,target=/root/.cache/uv \
    uv pip install --python /app/.venv --no-deps --require-hashes -r requirements/pipeline.txt
# Maven Central's client reads only this variable; a base image with a proxy's authority has it in the other one.
RUN HOME=/app/home XDG_CACHE_HOME=/tmp REQUESTS_CA_BUNDLE="${REQUESTS_CA_BUNDLE:-${SSL_CERT_FILE:-}}" \
    /app/.venv/bin/python -c \
    "from sidecar.local.jars import resolve_lock; resolve_lock('pipeline')"

FROM ${PYTHON_IMAGE} AS pipeline
# hadolint ignore=DL3008
RUN apt-get update \
    && mkdir -p /usr/share/man/man1 \
    && apt-get install -y --no-install-recommends openjdk-21-jre-headless \
    && rm -rf /var/lib/apt/lists/*
ENV PATH=/app/.venv/bin:$PATH \
    HOME=/app/home \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    SPARK_LOCAL_IP=0.0.0.0 \
    XDG_CACHE_HOME=/tmp
COPY --from=pipeline-build /app /app
# Hadoop requests the name of its user, and ends if there is none.
RUN echo "sidecar:x:10001:10001::/app/home:/usr/sbin/nologin" >> /etc/passwd \
    && install -d -o 10001 -g 10001 /tables
WORKDIR /tables
USER 10001:10001
EXPOSE 4040
ENTRYPOINT ["sidecar", "pipeline"]
CMD ["--help"]

FROM ${PYTHON_IMAGE}
# A release adds its commit, the time of the commit, the address of its sources, and the digest of the base image.
ARG PYTHON_IMAGE
ARG VERSION=0.1.0
ARG REVISION=""
ARG CREATED=""
ARG SOURCE=""
ARG BASE_DIGEST=""
LABEL org.opencontainers.image.title="kafka-sidecar" \
      org.opencontainers.image.description="Exclusive producers, deduplication and shadow topics for plain Apache Kafka" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}" \
      org.opencontainers.image.base.digest="${BASE_DIGEST}"
ENV PATH=/app/.venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1

# Root owns the code and an unnamed user runs it: the process cannot change its code, and no directory has to be
# writable (compose.yaml runs it on a read-only file system).
COPY --from=build /app/.venv /app/.venv
WORKDIR /app
USER 10001:10001

# The image has the product's own defaults, which listen only on loopback. Open it with SIDECAR_LISTEN and the address for
# clients, SIDECAR_ADVERTISE: see compose.yaml.
EXPOSE 19092 18080
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["sidecar", "healthcheck"]
ENTRYPOINT ["sidecar"]
CMD ["serve"]
