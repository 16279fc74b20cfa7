#!/bin/sh
# The registry form of the Bazel build: Debian's Bazel 4 over the WORKSPACE of stand-ins (see
# host/README.md). Use it as you would use bazel: `tools/bazel/host.sh test //...`, which is also
# what it does without arguments. Everything Bazel keeps lies in cargo's target folder, so whoever
# keeps that folder keeps Bazel's work too.
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
# The lock is the client's alone: the server, which lives on, does not get it (--close).
flock --nonblock "$base.lock" true || echo "bazel: waiting for another run in $base" >&2

# A folder that was moved, as a cache is that is restored elsewhere, has links into where it was.
# Bazel makes these again when they are gone, and uses what it has compiled.
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
