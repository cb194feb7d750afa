#!/bin/sh
# Build the image with this machine's engine: docker, podman or buildah.
#
#   sh scripts/build_image.sh [TAG] [ARGUMENT...]     ARGUMENT: of the engine's build, such as --build-arg DEVICE=cuda
#
# If the engine cannot pull the base image, debootstrap makes one from Debian's packages, and it is imported under the same
# name; only root can do that, with podman or docker.
set -eu
cd "$(dirname "$0")/.."

tag=${1:-surreal:$(sed -n 's/^__version__ = "\(.*\)"/\1/p' surreal/__init__.py)}
[ $# -eq 0 ] || shift
base=$(sed -n 's/^ARG PYTHON=\(.*\)/docker.io\/library\/python:\1-slim-bookworm/p' Dockerfile)

engine=
for each in docker podman buildah; do
    # A client of Docker without its daemon is of no use.
    if $each info >/dev/null 2>&1; then engine=$each && break; fi
done
if [ -z "$engine" ]; then
    echo "no container engine: install docker, podman or buildah" >&2
    exit 69
fi

has_base() { $engine inspect --type image "$base" >/dev/null 2>&1; }

# Debian 12 has the base image's Python, 3.11.
make_base() {
    if [ "$(id -u)" != 0 ] || [ "$engine" = buildah ] || ! command -v debootstrap >/dev/null; then
        echo "$base cannot be pulled; to make it here, run this as root, with debootstrap and podman or docker" >&2
        exit 69
    fi
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    debootstrap --variant=minbase --include=ca-certificates,python3,python3-pip,python3-venv bookworm "$root" >&2
    ln -s python3 "$root/usr/bin/python"
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
    tar -C "$root" -c . | $engine import - "$base"
}

has_base || timeout 60 $engine pull "$base" || make_base

case $engine in
docker) set -- --tag "$tag" "$@" ;;
# Layers without a nested sandbox, and the machine's network: it works inside a container, too.
*) set -- --isolation chroot --network host --format docker --tag "$tag" "$@" ;;
esac
$engine build "$@" .
$engine images "${tag%:*}"
