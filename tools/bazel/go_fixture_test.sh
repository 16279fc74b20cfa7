#!/bin/sh
# Tests the stand-in of rules_go, which no target in the tree uses yet: builds and tests the
# workspace of host/rules_go_fixture under Bazel 4, then plants faults in it, each of which must be
# found and named. The script runs outside Bazel, because the sandbox has no network for the
# modules.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
seconds_max=600
passed=0

fail() {
    echo "go_fixture: $1" >&2
    exit 1
}

for tool in bazel-4 go; do
    command -v "$tool" >/dev/null 2>&1 || fail "$tool not found; run: make setup"
done

work=$(mktemp -d)
clean() {
    bazel shutdown >/dev/null 2>&1 || true
    chmod -R u+w "$work"
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' HUP INT TERM

mkdir -p "$work/tree/tools/bazel"
cp -R "$root/tools/bazel/host/rules_go_fixture/." "$work/tree"
cp -R "$root/tools/bazel/host" "$root/tools/bazel/host.bazelrc" "$work/tree/tools/bazel"
cp "$root/.bazelignore" "$work/tree"
rm -rf "$work/tree/tools/bazel/host/rules_go_fixture" "$work/tree/tools/bazel/host/tests"
# Export only the scripts, not the targets of their tests.
echo 'exports_files(glob(["*.py"]))' >"$work/tree/tools/bazel/host/BUILD.bazel"
: >"$work/tree/MODULE.bazel" # By this file the repositories find the root.
cd "$work/tree"
cache=$(go env GOCACHE)
mkdir -p "$cache"

# bazel VERB...: runs Bazel on the fixture, with a time limit.
bazel() {
    timeout "$seconds_max" bazel-4 --noworkspace_rc --nohome_rc \
        --bazelrc=tools/bazel/host.bazelrc --output_user_root="$work/user" \
        --output_base="$work/base" --max_idle_secs=60 --host_jvm_args=-Xmx512m "$@"
}

test_all() {
    bazel test --keep_going --sandbox_writable_path="$cache" //... >"$work/log" 2>&1
}

# found FILE SED WORDS: with this change of the file the tests must fail and print these words.
found() {
    cp "$1" "$work/before"
    sed -i "$2" "$1"
    cmp -s "$1" "$work/before" && fail "'$2' changes nothing in $1"
    if test_all; then fail "not found: '$2' in $1"; fi
    grep -q -- "$3" "$work/log" || {
        cat "$work/log" >&2
        fail "'$2' in $1 was found, but the output lacks '$3'"
    }
    cp "$work/before" "$1"
    passed=$((passed + 1))
}

test_all || {
    cat "$work/log" >&2
    fail "the fixture fails without a fault"
}
passed=$((passed + 1))

found greeting/BUILD.bazel '/go_cmp/d' \
    '//greeting:greeting_test: it imports github.com/google/go-cmp/cmp, which its deps do not name'
found cmd/greet/BUILD.bazel '/deps = /d' \
    '//cmd/greet:greet_lib: it imports forebay.example/fixture/greeting, which its deps do not name'
found greeting/BUILD.bazel 's/go_cmp/go_cpm/' 'com_github_google_go_cpm'
found greeting/BUILD.bazel '/embedsrcs/d' 'pattern words.txt: no matching files'
found greeting/BUILD.bazel '/data = /d' 'testdata/name.txt: no such file'
found greeting/BUILD.bazel 's/"greeting_test.go"//' '//greeting:greeting_test: it has no tests'
found greeting/BUILD.bazel '/importpath/s/greeting"/greetings"/' \
    'its importpath is forebay.example/fixture/greeting, not forebay.example/fixture/greetings'
found greeting/words.txt 's/morning/evening/' '//greeting:greeting_test .*FAILED'
found go.sum 's/h1:wk8/h1:xk8/' 'checksum mismatch'

echo "go_fixture: $passed passed, 0 failed"
