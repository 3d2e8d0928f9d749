#!/usr/bin/env bash
# Makes the site of the documents in _output/site: those of the checkout, which are the version "main", and those of
# each tag that is named.
set -euo pipefail
cd "$(dirname "$0")"
root=$(realpath ../..)
work=$root/_output/site-work

rm -rf "$root/_output/site" "$work"
mkdir -p "$work"

# documents prints where Hugo finds the documents of a version, which are in a directory, and their pictures.
documents() {
  local version=$1 directory=$2 pictures=$3
  cat <<MOUNTS
[versions."$version"]
[[module.mounts]]
source = "$directory/README.md"
target = "content/_index.md"
sites.matrix.versions = ["$version"]
[[module.mounts]]
source = "$directory/docs/README.md"
target = "content/documents.md"
sites.matrix.versions = ["$version"]
[[module.mounts]]
source = "$directory/docs"
target = "content"
files = ["! README.md", "! images/**"]
sites.matrix.versions = ["$version"]
[[module.mounts]]
source = "$directory/docs/images"
target = "assets/$pictures"
MOUNTS
}

{
  cat <<MOUNTS
[[module.mounts]]
source = "layouts"
target = "layouts"
[[module.mounts]]
source = "assets"
target = "assets"
[[module.mounts]]
source = "$root/pkg/kubectl/web/ui/src/icon.svg"
target = "assets/icon.svg"
MOUNTS
  documents main "$root" images
  for version in "$@"; do
    mkdir -p "$work/$version"
    git -C "$root" archive "$version" README.md docs | tar -xC "$work/$version"
    documents "$version" "$work/$version" "$version/images"
  done
} >"$work/versions.toml"

# Hugo does not end where the templates fail for ten pages or more.
hugo=$(CGO_ENABLED=0 go tool -n hugo)
timeout 5m "$hugo" build --panicOnWarning --noBuildLock --cacheDir "$work/cache" \
  --config "hugo.toml,$work/versions.toml" --destination "$root/_output/site" >/dev/null
