#!/bin/sh
# Runs Debian's Bazel 4 on the WORKSPACE of stand-ins (see host/README.md). Use this script like
# bazel: `tools/bazel/host.sh test //...`, which is also the default. All files of Bazel are in
# cargo's target folder, so a cache of that folder includes Bazel's outputs.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
lock_seconds_max=3600
idle_seconds_max=60
heap_megabytes_max=1024

fail() {
    echo "bazel: $1" >&2
    echo "bazel: fix: $2" >&2
    exit 1
}

command -v bazel-4 >/dev/null 2>&1 ||
    fail "Debian's Bazel 4 (bazel-4) not found" "make setup, or use Bazel 8 (.bazelversion)"

cd "$root"
target=$(cargo metadata --no-deps --format-version 1 |
    sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
[ -n "$target" ] || fail "cargo does not say where it builds" "cargo metadata --no-deps"
base=$target/bazel
mkdir -p "$base"

# Two checkouts may share a target folder, and a second Bazel would end the server of the first.
# Only the client holds the lock: the server, which outlives the client, does not inherit it
# (--close).
flock --nonblock "$base.lock" true || echo "bazel: waiting for another run in $base" >&2

# A moved folder, such as a cache that is restored elsewhere, has links into its old location. Bazel
# recreates missing links, and reuses its compiled outputs.
if [ "$(cat "$base/place" 2>/dev/null)" != "$base" ]; then
    mkdir -p "$base/base/external"
    flock --wait "$lock_seconds_max" "$base.lock" chmod -R u+w "$base/base/external"
    flock --wait "$lock_seconds_max" "$base.lock" rm -rf "$base/base/external"
    echo "$base" >"$base/place"
fi

[ "$#" -gt 0 ] || set -- test //...
exec flock --close --wait "$lock_seconds_max" "$base.lock" \
    bazel-4 --noworkspace_rc --nohome_rc --bazelrc=tools/bazel/host.bazelrc \
    --output_user_root="$base/user" --output_base="$base/base" \
    --max_idle_secs="$idle_seconds_max" --host_jvm_args="-Xmx${heap_megabytes_max}m" "$@"
