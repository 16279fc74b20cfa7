# The entry points. Every target runs the set-up that it needs, and a failure prints its fix.
# tools/setup (shell) and tools/xtask (Rust) do the work; this file only calls them.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup demo test nightly package check bazel bazel-mutation-test bench sim fuzz sanitize schedules dev
MAKEFLAGS += --no-print-directory

SETUP := @sh tools/setup/setup.sh
# The set-up of the demo installs Kafka only for LOG=kafka, and no tools of the tests.
SETUP_DEMO := $(SETUP) demo
XTASK := @cargo run --quiet --locked --package xtask --

# Make exports variables of its command line, such as `make demo LOG=kafka`, to the environment. The
# demo reads LOG, PLANT and SMALL, benchmarks QUICK, simulator and schedules SEEDS and SEED, the
# fuzz targets FUZZ_SECONDS, and `make nightly` ONLY.

help: ## Print this list
	@echo "Forebay: write once through a durable log; read anywhere, in process."
	@echo
	@sed -n 's/^\([a-z%-]*\):.*## \(.*\)/  make \1#\2/p' Makefile | awk -F'#' '{printf "%-18s %s\n", $$1, $$2}'

setup: ## Check the toolchains, install missing tools, create .venv (seconds when done before)
	$(SETUP)

demo: ## Run the main job on real data: writer, change log, embedded readers, an oracle
	$(SETUP) announce
	$(SETUP_DEMO)
	$(XTASK) demo

test: ## Run every stage of the tests; the last line is "N passed, M failed"
	$(SETUP)
	$(XTASK) test

nightly: ## Run long tests and measures (ONLY=tests, long, release); adds to tools/nightly/record.md
	$(SETUP)
	$(XTASK) nightly

package: ## Build the release, with RocksDB compiled in, as an archive in target/package
	$(SETUP_DEMO)
	$(XTASK) package

check: ## Check format, lints, language, layers, tidiness, types, the Bazel graph
	$(SETUP)
	$(XTASK) check

bazel: ## Run bazel test //... with Debian's Bazel, on the crates that cargo has built
	$(SETUP)
	$(XTASK) bazel

bazel-mutation-test: ## Mutation-test BUILD files: plant each known fault and expect that it is caught
	$(SETUP)
	$(XTASK) bazel-mutation-test

bench: ## Run all benchmarks (QUICK=1: fewer rounds)
	$(SETUP)
	$(XTASK) bench

bench-%: ## Run a benchmark, such as make bench-writes QUICK=1
	$(SETUP)
	$(XTASK) bench $*

sim: ## Run the simulator: SEEDS=1000 SEED=1
	$(SETUP_DEMO)
	$(XTASK) sim

fuzz: ## Run the fuzz targets: FUZZ_SECONDS=10 for each
	$(SETUP_DEMO)
	$(XTASK) fuzz

sanitize: ## Test the index under AddressSanitizer and ThreadSanitizer
	$(SETUP_DEMO)
	$(XTASK) sanitize

schedules: ## Test the index's readers, writers and killed owners in many orders: SEED=9 SEEDS=1
	$(SETUP_DEMO)
	$(XTASK) schedules

dev: ## Run forebayd dev in the foreground
	$(SETUP_DEMO)
	$(XTASK) dev
