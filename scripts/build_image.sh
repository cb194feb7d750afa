#!/bin/sh
# Build the image with this machine's engine: docker, podman or buildah.
#
#   sh scripts/build_image.sh [TAG] [ARGUMENT...]     ARGUMENT: of the engine's build, such as --build-arg DEVICE=cuda
#
# If the engine cannot pull the base image, debootstrap makes one from Debian's packages, and it is imported under the same
# name; only root can do that, with podman or docker. The build names the base by its digest, and labels the image with it.
set -eu
cd "$(dirname "$0")/.."

tag=${1:-surreal:$(sed -n 's/^__version__ = "\(.*\)"/\1/p' surreal/__init__.py)}
[ $# -eq 0 ] || shift
base=$(sed -n 's/^ARG BASE=//p' Dockerfile)
for argument; do
    case $argument in BASE=*) base=${argument#BASE=} ;; esac
done

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

# NAME@sha256:..., or nothing if the engine knows none, as Docker does not of an imported image.
case $engine in
buildah) pinned=${base%:*}@$(buildah inspect --type image --format '{{.FromImageDigest}}' "$base") ;;
*) pinned=$($engine image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$base" | sed -n 1p) ;;
esac
echo "base: ${pinned:-$base}"
set -- "$@" --build-arg "BASE=${pinned:-$base}" \
    --label "org.opencontainers.image.base.name=$base" --label "org.opencontainers.image.base.digest=${pinned#*@}"

case $engine in
docker) set -- --tag "$tag" "$@" ;;
# Layers without a nested sandbox, and the machine's network: it works inside a container, too.
*) set -- --isolation chroot --network host --format docker --tag "$tag" "$@" ;;
esac
$engine build "$@" .
$engine images --digests "${tag%:*}"
