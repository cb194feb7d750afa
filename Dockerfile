# An image with Surreal in it, for every process of a run; docs/container.md.
#
#   docker build -t surreal:0.1.0 .
#   docker build -t surreal:0.1.0-cuda --build-arg DEVICE=cuda .
#   docker build -t surreal:atari --build-arg EXTRAS=atari,s3,tensorboard,ws .
ARG PYTHON=3.11
FROM python:${PYTHON}-slim-bookworm AS build

# cpu: builds of torch without CUDA, a tenth of the size; cuda: those that bring it along.
ARG DEVICE=cpu
# What users of the image need beyond the core: extras of setup.py.
ARG EXTRAS=prometheus,s3,tensorboard,ws

WORKDIR /src
COPY setup.py pyproject.toml constraints.txt README.md LICENSE ./
COPY clients clients
COPY k8s k8s
COPY surreal surreal
# Exactly the versions that are tested. What builds the package is one of them, and pip itself is not in the image.
RUN case "$DEVICE" in \
        cpu) export PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu ;; \
        cuda) ;; \
        *) echo "DEVICE is $DEVICE; it must be cpu or cuda" >&2; exit 2 ;; \
    esac \
    && python -m venv --without-pip /opt/surreal \
    && python -m pip --python /opt/surreal/bin/python install --no-cache-dir -c constraints.txt setuptools \
    && python -m pip --python /opt/surreal/bin/python install --no-cache-dir -c constraints.txt \
        --no-build-isolation ".[$EXTRAS]"


FROM python:${PYTHON}-slim-bookworm

# Redis 7 can tell users apart better than the older one that comes as a Python package.
RUN apt-get update \
    && apt-get install -y --no-install-recommends "redis-server=5:7.*" \
    && rm -rf /var/lib/apt/lists/* \
    && install -d -o 10001 -g 10001 /app /work
COPY --from=build /opt/surreal /opt/surreal
RUN ln -sf /usr/bin/redis-server /opt/surreal/bin/redis-server \
    && /opt/surreal/bin/surreal --version

# Nothing is written but in /work, where runs are, and /tmp; classes of yours belong in /app.
ENV PATH=/opt/surreal/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    SURREAL_HEALTH=/tmp/health
USER 10001:10001
WORKDIR /work

# A process that says how it is must be well; others, such as `surreal run`, run or they do not.
HEALTHCHECK --interval=15s --timeout=10s --start-period=5m --retries=3 \
    CMD ["sh", "-c", "test ! -e $SURREAL_HEALTH || surreal health --probe liveness"]
ENTRYPOINT ["surreal"]
CMD ["--help"]
