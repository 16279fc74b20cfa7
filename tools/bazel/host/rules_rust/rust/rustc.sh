#!/bin/bash
# rustc.sh PACKAGE SCRIPT_OUTPUT COMPILER ARGUMENT...
# Runs rustc or rustdoc as rules_rust does: CARGO_MANIFEST_DIR is the package's folder in the
# sandbox, rustc's output does not hold the sandbox's path, and what a build script printed
# (SCRIPT_OUTPUT, or "") is obeyed. In bash: a plain sh drops a variable whose name is none to it,
# such as CARGO_BIN_EXE_forebay-writer.
set -eu

package=$1
output=$2
shift 2
export CARGO_MANIFEST_DIR="$PWD/$package"
if [ -n "$output" ]; then
    export OUT_DIR="$PWD/$output/out"
    while IFS= read -r line; do
        case $line in
            env\ *) export "${line#env }" ;;
            *) set -- "$@" "$line" ;;
        esac
    done <"$output/flags"
fi
case $1 in
    */rustdoc) exec "$@" ;;
    *) exec "$@" "--remap-path-prefix=$PWD=." ;;
esac
