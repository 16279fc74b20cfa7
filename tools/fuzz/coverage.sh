#!/bin/sh
# A wrapper of rustc (RUSTC_WORKSPACE_WRAPPER) that instruments the edges of our own crates, which
# guides libFuzzer. Build scripts are not instrumented: nothing would read their counts.
set -eu

rustc=$1
shift
case " $* " in
*" --crate-name build_script_"*) exec "$rustc" "$@" ;;
esac
exec "$rustc" "$@" \
    -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
