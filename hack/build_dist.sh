#!/usr/bin/env bash
# Builds what a package index would have: source distributions of fabric and client, and a wheel from
# each of them, of the tracked files as they are here. Called by `make dist`: build_dist.sh UV FOLDER
set -euo pipefail
uv=$1
out=$(realpath -m "$2")
cd "$(dirname "$0")/.."

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir "$stage/fabric" "$stage/client"
git ls-files -z | tar --create --null --files-from=- | tar --extract --directory "$stage/fabric"

# The client's packages lie in three folders, a source distribution has one.
cp -L "$stage"/fabric/sdk/{pyproject.toml,README.md,LICENSE} "$stage/client"
for package in api/flowmesh_api documents/flowmesh_documents sdk/flowmesh_sdk; do
    cp -RL "$stage/fabric/$package" "$stage/client"
done
sed -i 's#"\.\./[a-z]*/#"#' "$stage/client/pyproject.toml"

for folder in client fabric; do
    "$uv" build --system-certs --quiet --out-dir "$out" "$stage/$folder"
done
