#!/usr/bin/env bash
# Builds the images that a release publishes, with docker, podman or buildah, whichever is there.
# Called by `make images`: build_images.sh VERSION REGISTRY FLAVOR... (flavors of the worker: thin,
# cpu, gpu). BUILDER names the program, BASE is the image to build on, and BUILD_FLAGS has more words
# for the program, such as the volume with a company's certificates.
set -euo pipefail
version=$1
registry=${2%/}
shift 2

for flavor in "$@"; do
    case "$flavor" in
        thin | cpu | gpu) ;;
        *)
            echo "error: no flavor '$flavor': expected thin, cpu or gpu" >&2
            exit 1
            ;;
    esac
done

builder=${BUILDER:-}
for known in docker podman buildah; do
    # The program alone does not build: docker may have no daemon, or not be this user's.
    [ -n "$builder" ] || { "$known" info > /dev/null 2>&1 && builder=$known; } || true
done
case "$builder" in
    docker | podman) build=("$builder" build) ;;
    buildah) build=(buildah bud --isolation chroot --layers) ;;
    *)
        echo "error: cannot build with ${builder:-docker, podman or buildah}:" \
            "install one of these, or name it with BUILDER=" >&2
        exit 1
        ;;
esac

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
