#!/bin/sh
# Stands before rustc (RUSTC_WORKSPACE_WRAPPER) and has it count which edges of our own crates run,
# which is what guides libFuzzer. Build scripts are left alone: nothing would count for them.
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
