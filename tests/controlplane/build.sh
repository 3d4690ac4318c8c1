#!/usr/bin/env bash
# Builds the test control plane unless the cached binary was built from the same sources, and
# prints the path of the binary. Cold on two cores: about 8 minutes and 3 GB of memory.
#
# The binary lies in $GPUDECK_CACHE (default: .cache/controlplane in the repository), outside
# target/, so that `cargo clean` does not cost it.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${GPUDECK_CACHE:-$here/../../.cache/controlplane}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
cd "$here"

kubernetes=$(sed -n 's|^\tk8s.io/kubernetes \(v[0-9.]*\)$|\1|p' go.mod)
if [ -z "$kubernetes" ]; then
    echo "build.sh: no line 'k8s.io/kubernetes vX.Y.Z' in $here/go.mod" >&2
    exit 1
fi
IFS=. read -r major minor _ <<<"${kubernetes#v}"
# Without these the server calls itself v0.0.0 and clients take it for an ancient one.
versioned=k8s.io/component-base/version
ldflags="-s -w -X $versioned.gitVersion=$kubernetes -X $versioned.gitMajor=$major -X $versioned.gitMinor=$minor"

binary=$cache/controlplane
sources=$( { go env GOVERSION GOOS GOARCH; cat go.mod go.sum ./*.go build.sh; } | { sha256sum 2>/dev/null || shasum -a 256; } | cut -d ' ' -f 1)
if [ ! -x "$binary" ] || [ "$(cat "$binary.built-from" 2>/dev/null)" != "$sources" ]; then
    go build -trimpath -buildvcs=false -ldflags "$ldflags" -o "$binary.new" . >&2
    mv -f "$binary.new" "$binary"
    echo "$sources" >"$binary.built-from"
fi
echo "$binary"
