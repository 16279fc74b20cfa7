#!/bin/sh
# Prepares the peers of bench-index, and Forebay as released: the jar and the wheel of the release
# build. All output goes to the given folder, nothing into the tree. A part is rebuilt only if its
# inputs have changed. Every failure prints its fix.
#
#   setup.sh FOLDER TARGET output folder, and cargo's output folder
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
here=$root/bench/peers
# Maven refuses a relative path.
folder=$(realpath -m "$1")
target=$(realpath -m "$2")
seconds_max=1500

fail() {
    echo "peers: $1" >&2
    echo "peers: fix: $2" >&2
    exit 1
}

# stamp_of FILE_OR_FOLDER...: a key that changes with the contents, at any path.
stamp_of() {
    for made_of in "$@"; do
        if [ -d "$made_of" ]; then
            (cd "$made_of" && find . -type f ! -path '*/target/*' ! -path '*/__pycache__/*' \
                -exec cksum {} + | sort)
        else
            cksum <"$made_of"
        fi
    done | cksum
}

# is_done NAME STAMP / done_with NAME STAMP
is_done() {
    [ -f "$folder/$1.stamp" ] && [ "$(cat "$folder/$1.stamp")" = "$2" ]
}

done_with() {
    printf '%s\n' "$2" >"$folder/$1.stamp"
}

# The newer JDK, next to the JDK on the path; empty if there is none.
newer_jdk() {
    home=$(dirname "$(dirname "$(readlink -f "$(command -v java)")")")
    for jdk in "$(dirname "$home")"/*25*; do
        if [ -x "$jdk/bin/java" ]; then
            echo "$jdk"
            return
        fi
    done
}

# The script packages a copy of the client, so that it disturbs no other build.
make_jar() {
    stamp=$(stamp_of "$root/clients/java/src" "$root/clients/java/pom.xml" \
        "$target/release/libforebay_ffi.so")
    if is_done client "$stamp"; then return; fi
    echo "peers: packaging the Java client"
    copy=$folder/client
    rm -rf "$copy"
    mkdir -p "$copy"
    cp -r "$root/clients/java/src" "$root/clients/java/pom.xml" "$copy"
    named=
    if [ -n "$jdk" ]; then named=-Dforebay.jdk22=$jdk; fi
    timeout "$seconds_max" mvn -B -q -f "$copy/pom.xml" -DskipTests "-Dforebay.root=$root" \
        "-Dforebay.target=$target/release" $named package ||
        fail "Maven could not package the Java client" "mvn -f clients/java/pom.xml package"
    cp "$copy/target/forebay-client-0.1.0.jar" "$folder/client.jar"
    rm -rf "$copy"
    done_with client "$stamp"
}

make_java_peers() {
    stamp=$(stamp_of "$here/java" "$folder/client.jar")
    if is_done java "$stamp"; then return; fi
    echo "peers: fetching the peers in Java, and building their worker"
    rm -rf "$folder/jars" "$folder/worker"
    timeout "$seconds_max" mvn -B -q -f "$here/java/pom.xml" "-Dforebay.client=$folder/client.jar" \
        "-Dforebay.built=$folder/worker" package dependency:copy-dependencies \
        -DincludeScope=runtime "-DoutputDirectory=$folder/jars" ||
        fail "Maven could not fetch or build the peers in Java" \
            "check the network and Maven's settings (mvn help:effective-settings)"
    cp "$folder/worker/forebay-bench-peers-0.1.0.jar" "$folder/client.jar" "$folder/jars"
    done_with java "$stamp"
}

make_wheel() {
    stamp=$(stamp_of "$here/python/requirements.txt" "$root/clients/python/forebay" \
        "$root/clients/python/src" "$root/clients/python/pyproject.toml" "$root/libs" \
        "$root/Cargo.lock")
    if is_done wheel "$stamp"; then return; fi
    echo "peers: building the wheel, and fetching the peers in Python"
    rm -rf "$folder/wheel" "$folder/venv"
    (cd "$root" && PATH="$root/.venv/bin:$PATH" timeout "$seconds_max" \
        maturin build --quiet --release --locked -m clients/python/Cargo.toml \
        --out "$folder/wheel") || fail "maturin could not build the wheel" "make setup"
    python3 -m venv "$folder/venv" || fail "cannot make a venv" "apt-get install -y python3-venv"
    timeout "$seconds_max" "$folder/venv/bin/python" -m pip install --quiet \
        --disable-pip-version-check --only-binary :all: -r "$here/python/requirements.txt" \
        "$folder"/wheel/*.whl ||
        fail "pip could not install the peers in Python" \
            "check the network and pip's settings (pip config list)"
    done_with wheel "$stamp"
}

mkdir -p "$folder"
(cd "$root" && cargo build --quiet --release --locked -p forebay-ffi) ||
    fail "the C ABI does not build" "cargo build --release -p forebay-ffi"
jdk=$(newer_jdk)
make_jar
make_java_peers
make_wheel
printf '%s\n' "$jdk" >"$folder/jdk"
