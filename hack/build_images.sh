#!/usr/bin/env bash
# Builds the images that a release publishes, with docker, podman or buildah, whichever is there.
# Called by `make images`: build_images.sh VERSION REGISTRY FLAVOR... (flavors of the worker: thin,
# cpu, gpu). BASE is the image to build on, and BUILD_FLAGS has more words for the program, such as
# the volume with a company's certificates.
set -euo pipefail
version=$1
registry=${2%/}
shift 2

if command -v docker > /dev/null; then
    build=(docker build)
elif command -v podman > /dev/null; then
    build=(podman build --layers)
elif command -v buildah > /dev/null; then
    build=(buildah bud --isolation chroot --layers)
else
    echo "error: no docker, podman or buildah: install one of them" >&2
    exit 1
fi

image() { # NAME DOCKERFILE [BUILD ARGUMENT...]
    local name="${registry:+$registry/}$1"
    echo "building $name"
    # shellcheck disable=SC2086 - words
    "${build[@]}" --quiet ${BUILD_FLAGS:-} ${BASE:+--build-arg "BASE=$BASE"} \
        --tag "$name" --file "$2" "${@:3}" .
}

image "flowmesh-operator:$version" Dockerfile.operator
for flavor in "$@"; do
    image "flowmesh-worker:$version-$flavor" Dockerfile.worker --build-arg "FLAVOR=$flavor"
done
