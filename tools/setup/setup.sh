#!/bin/sh
# Prepares a machine: checks the language toolchains, installs missing Debian packages (as root;
# otherwise prints the command), and creates .venv from the pinned requirements. The script may run
# at any time; stamps make a second run take no time. Every failure prints its fix.
#
#   setup.sh announce   prints how long `make demo` takes
#   setup.sh demo       installs the tools of demo, dev and simulator; Kafka only if LOG=kafka
#   setup.sh            also installs the tools of tests and checks: Kafka, object stores, Redis,
#                       Go, Bazel, protoc, buildifier, and an environment for each other Python
#
# RocksDB, Kafka and the S3 server come from Maven, the Azure server from npm, and buildifier from
# its Go module, all into cargo's target folder.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
folder=$root/tools/setup
venv=$root/.venv
apt_seconds_max=600
pip_seconds_max=900
maven_seconds_max=600
lock_seconds_max=900
go_seconds_max=600
npm_seconds_max=600
# Pythons of the client's tests, in addition to that of .venv; the oldest first. Missing ones are
# left out.
pythons="3.9 3.10 3.11 3.12 3.13"
# The version that the pinned gazelle (MODULE.bazel) uses; buildtools tags no Go versions.
buildifier=github.com/bazelbuild/buildtools/buildifier@v0.0.0-20250930140053-2eb4fccefb52

fail() {
    echo "setup: $1" >&2
    echo "setup: fix: $2" >&2
    exit 1
}

# at_least FOUND WANTED: compares dotted versions, number by number.
at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# check NAME FOUND WANTED FIX
check() {
    [ -n "$2" ] || fail "$1 not found" "$4"
    at_least "$2" "$3" || fail "$1 is $2, and $3 or newer is needed" "$4"
}

# version_in: prints the first dotted number of its input.
version_in() {
    sed -n 's/[^0-9]*\([0-9][0-9.]*[0-9]\).*/\1/p' | head -n 1
}

check_rust() {
    found=$(cargo --version 2>/dev/null | version_in || true)
    check cargo "$found" 1.95 "install stable Rust 1.95 or newer, such as: rustup update stable"
    command -v cc >/dev/null 2>&1 ||
        fail "no C compiler (cc), which Rust needs to link" "apt-get install -y gcc"
}

check_python() {
    found=$("$python" --version 2>/dev/null | version_in || true)
    check python3 "$found" 3.11 "install Python 3.11 or newer, or set PYTHON to its path"
}

check_java() {
    found=$(java -version 2>&1 | version_in || true)
    check java "$found" 17 "apt-get install -y openjdk-17-jdk-headless"
    command -v javac >/dev/null 2>&1 ||
        fail "java is installed but javac is not" "apt-get install -y openjdk-17-jdk-headless"
    found=$(mvn --version 2>/dev/null | version_in || true)
    check mvn "$found" 3.8 "apt-get install -y maven"
}

# Go runs Bazel's rules for Go and compiles buildifier.
check_go() {
    found=$(go env GOVERSION 2>/dev/null | version_in || true)
    check go "$found" 1.26 "install Go 1.26 or newer, and put its bin folder on PATH"
}

# Node.js runs the Azure server.
check_node() {
    found=$(node --version 2>/dev/null | version_in || true)
    check node "$found" 20 "install Node.js 20 or newer, and put its bin folder on PATH"
    found=$(npm --version 2>/dev/null | version_in || true)
    check npm "$found" 9 "install npm 9 or newer, which comes with Node.js"
}

# debian PACKAGE PROBE...: installs the Debian package if the probe fails.
debian() {
    package=$1
    shift
    if "$@" >/dev/null 2>&1; then return 0; fi
    fix="apt-get install -y --no-install-recommends $package"
    [ "$(id -u)" = 0 ] || fail "Debian package $package is missing" "sudo $fix"
    command -v apt-get >/dev/null 2>&1 || fail "package $package is missing" "install it"
    echo "setup: installing Debian package $package"
    if [ -z "$apt_updated" ]; then
        timeout "$apt_seconds_max" apt-get update -qq ||
            fail "apt-get update failed" "apt-get update"
        apt_updated=yes
    fi
    # RUNLEVEL=1 keeps apt from starting a service.
    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 timeout "$apt_seconds_max" \
        apt-get install -y -qq --no-install-recommends "$package" >/dev/null ||
        fail "cannot install $package" "$fix"
    "$@" >/dev/null 2>&1 || fail "$package is installed, but '$*' still fails" "$fix"
}

# stamp_of FILE...: a key that changes with this script, the files, and the tools found.
stamp_of() {
    {
        cat "$folder/setup.sh" "$@"
        for tool in "$python" java javac mvn; do
            path=$(command -v "$tool" || true)
            [ -z "$path" ] || stat -L -c '%n %i %Y' "$path"
        done
    } | cksum
}

# is_made FOLDER STAMP: succeeds if a folder is up to date.
is_made() {
    [ -f "$1/forebay.stamp" ] && [ "$(cat "$1/forebay.stamp")" = "$2" ]
}

# librdkafka is compiled from source by configure and make. libclang generates the bindings of
# RocksDB; LIBCLANG_PATH may name its folder.
check_native() {
    debian g++ c++ --version
    debian make make --version
    if [ -z "${LIBCLANG_PATH:-}" ]; then
        debian libclang-dev sh -c 'ls /usr/lib/llvm-*/lib/libclang.so'
    fi
}

# make_venv PYTHON FOLDER REQUIREMENTS
make_venv() {
    echo "setup: creating ${2##"$root"/} from tools/setup/$3"
    rm -rf "$2"
    "$1" -m venv "$2" || fail "cannot create $2" "apt-get install -y python3-venv"
    # Python compiles a module when it is imported first; most of these modules never are.
    timeout "$pip_seconds_max" "$2/bin/python" -m pip install --quiet --no-compile \
        --disable-pip-version-check --only-binary :all: -r "$folder/$3" ||
        fail "pip could not install tools/setup/$3" \
            "check the network and pip's settings (pip config list), then run: make setup"
}

# python_of VERSION: prints the path of an interpreter of this version that can create environments.
python_of() {
    for found in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/"python$1"; do
        if "$found" -c 'import ensurepip, sys, venv; print(sys.executable)' 2>/dev/null; then
            return 0
        fi
    done
    return 1
}

# The other Pythons are optional; the tests print the ones on which they run.
prepare_pythons() {
    for version in $pythons; do
        made=$target/pythons/$version
        if ! found=$(python_of "$version"); then
            rm -rf "$made"
            continue
        fi
        stamp=$({ cat "$folder/setup.sh" "$folder/pythons.txt" && stat -L -c '%n %i %Y' "$found"
        } | cksum)
        if is_made "$made" "$stamp"; then continue; fi
        make_venv "$found" "$made" pythons.txt
        printf '%s\n' "$stamp" >"$made/forebay.stamp"
    done
}

# Finds cargo's target folder.
find_target() {
    target=$(cd "$root" && cargo metadata --no-deps --format-version 1 |
        sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
    [ -n "$target" ] || fail "cargo does not name its target folder" "see: cargo metadata --no-deps"
}

# put_in_place FOLDER STAMP: replaces FOLDER by the complete FOLDER.new.
put_in_place() {
    printf '%s\n' "$2" >"$1.new/forebay.stamp"
    rm -rf "$1"
    mv "$1.new" "$1"
}

# fetch_jars WHAT POM FOLDER: fetches the jars that a pom pins.
fetch_jars() {
    pins=$(cksum <"$root/$2")
    if is_made "$3" "$pins"; then return 0; fi
    echo "setup: fetching $1 from $2"
    rm -rf "$3.new"
    timeout "$maven_seconds_max" mvn -B -q -f "$root/$2" \
        dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$3.new" ||
        fail "Maven could not fetch $1" \
            "check the network and Maven's settings (mvn help:effective-settings), then: make setup"
    put_in_place "$3" "$pins"
}

# Fetches Azurite and its dependencies at the versions of the lock file. No package needs its
# install scripts.
fetch_azurite() {
    pins=$(cat "$root/infra/objects/package.json" "$root/infra/objects/package-lock.json" | cksum)
    azure=$target/objects/azure
    if is_made "$azure" "$pins"; then return 0; fi
    echo "setup: fetching the Azure server from infra/objects/package-lock.json"
    rm -rf "$azure.new"
    mkdir -p "$azure.new"
    cp "$root/infra/objects/package.json" "$root/infra/objects/package-lock.json" "$azure.new"
    (cd "$azure.new" && timeout "$npm_seconds_max" \
        npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null) ||
        fail "npm could not fetch the Azure server" \
            "check the network and npm's settings (npm config list), then: make setup"
    put_in_place "$azure" "$pins"
}

# Builds the formatter of BUILD files, at the version pinned above.
fetch_buildifier() {
    tools=$target/tools
    pin="$buildifier $(go env GOVERSION)"
    if [ -x "$tools/buildifier" ] && [ "$(cat "$tools/buildifier.stamp" 2>&1)" = "$pin" ]; then
        return 0
    fi
    echo "setup: building $buildifier"
    mkdir -p "$tools"
    # The proxy and the checksum database of go's settings verify the module.
    (cd "$tools" && GOBIN=$tools \
        timeout "$go_seconds_max" go install "$buildifier") ||
        fail "go could not install buildifier" \
            "check the network and go's settings (go env GOPROXY GOFLAGS), then: make setup"
    printf '%s\n' "$pin" >"$tools/buildifier.stamp"
}

# Prepares Java, Python and .venv, which all commands need.
prepare_languages() {
    stamp=$(stamp_of "$folder/requirements.txt")
    if is_made "$venv" "$stamp"; then return 0; fi
    check_python
    check_java
    check_native
    debian python3-venv "$python" -c 'import ensurepip, venv'
    make_venv "$python" "$venv" requirements.txt
    printf '%s\n' "$stamp" >"$venv/forebay.stamp"
}

# Installs the tools that tests and checks need in addition to the demo's.
prepare_tests() {
    check_go
    check_node
    debian bazel-bootstrap bazel-4 --version
    debian protobuf-compiler protoc --version
    debian redis-server redis-server --version
    fetch_jars "the S3 server" infra/objects/pom.xml "$target/objects/s3"
    fetch_azurite
    fetch_buildifier
    prepare_pythons
}

# Prints the first line of `make demo`.
announce() {
    check_rust
    find_target
    if [ -x "$target/debug/forebayd" ] && [ -x "$target/debug/demo_load" ]; then
        echo "demo: takes about a minute, after a build of the changes since the last one"
    else
        echo "demo: the first run compiles for about 15 minutes on two cores (here: $(nproc))," \
            "prints each crate, and then takes about a minute"
    fi
}

main() {
    scope=${1:-all}
    case $scope in
        all | demo) ;;
        announce) announce && return ;;
        *) fail "no part '$scope'" "sh tools/setup/setup.sh, with 'demo', 'announce' or nothing" ;;
    esac
    python=${PYTHON:-python3}
    apt_updated=
    # Two concurrent set-ups would write one .venv, so the second waits for the first.
    if command -v flock >/dev/null 2>&1; then
        exec 9<"$folder/requirements.txt"
        flock -w "$lock_seconds_max" 9 ||
            fail "another set-up is still running" "wait, then: make setup"
    fi
    check_rust
    prepare_languages
    find_target
    prepare_rocksdb
    if [ "$scope" = all ] || [ "${LOG:-}" = kafka ]; then
        fetch_jars Kafka infra/kafka/pom.xml "$target/kafka"
    fi
    if [ "$scope" = all ]; then prepare_tests; fi
    echo "setup: ready"
}

. "$folder/rocksdb.sh"
main "$@"
