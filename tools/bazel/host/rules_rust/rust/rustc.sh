#!/bin/bash
# rustc.sh PACKAGE SCRIPT_OUTPUT COMPILER ARGUMENT...
# Runs rustc or rustdoc as rules_rust does: CARGO_MANIFEST_DIR is the package's folder in the
# sandbox, rustc's output does not contain the sandbox's path, and the instructions of a build
# script (SCRIPT_OUTPUT, or "") are followed. The script needs bash: plain sh drops variables whose
# names it does not accept, such as CARGO_BIN_EXE_forebay-writer.
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
