# The entry points. Every target sets up the machine by itself, and a failure prints its fix.
# tools/setup (shell) and tools/xtask (Rust) do the work; this file only calls them.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup demo test nightly package check bazel bazel-plant bench sim fuzz sanitize schedules dev
MAKEFLAGS += --no-print-directory

SETUP := @sh tools/setup/setup.sh
# The set-up of a first run installs no Kafka, unless LOG=kafka, and no tools of the tests.
SETUP_DEMO := $(SETUP) demo
XTASK := @cargo run --quiet --locked --package xtask --

# `make demo LOG=kafka`, `make sim SEEDS=10`: make exports variables of its command line to the
# environment, which demo (LOG, PLANT, SMALL), benchmarks (QUICK), simulator and schedules (SEEDS,
# SEED) read.

help: ## This list
	@echo "Forebay: write once through a durable log; read anywhere, in process."
	@echo
	@sed -n 's/^\([a-z%-]*\):.*## \(.*\)/  make \1#\2/p' Makefile | awk -F'#' '{printf "%-18s %s\n", $$1, $$2}'

setup: ## Check the toolchains, install what is missing, make .venv (seconds when done before)
	$(SETUP)

demo: ## The main job on real data: writer, change log, embedded readers, an oracle
	$(SETUP) announce
	$(SETUP_DEMO)
	$(XTASK) demo

test: ## Every stage of the tests; closes with "N passed, M failed"
	$(SETUP)
	$(XTASK) test

nightly: ## Long forms and measures, ONLY=tests, long or release; adds to tools/nightly/record.md
	$(SETUP)
	$(XTASK) nightly

package: ## The release build with RocksDB compiled in, as an archive in target/package
	$(SETUP_DEMO)
	$(XTASK) package

check: ## Format, lints, layers, tidiness, types, the Bazel graph
	$(SETUP)
	$(XTASK) check

bazel: ## bazel test //... by this machine's Bazel, on what cargo has built
	$(SETUP)
	$(XTASK) bazel

bazel-plant: ## Plant every known fault of a BUILD file, and see each one caught
	$(SETUP)
	$(XTASK) bazel-plant

bench: ## All benchmarks (QUICK=1: fewer rounds)
	$(SETUP)
	$(XTASK) bench

bench-%: ## One benchmark, such as make bench-NAME QUICK=1
	$(SETUP)
	$(XTASK) bench $*

sim: ## The simulator: SEEDS=1000 SEED=1
	$(SETUP_DEMO)
	$(XTASK) sim

fuzz: ## The fuzz targets: FUZZ_SECONDS=10 for each
	$(SETUP_DEMO)
	$(XTASK) fuzz

sanitize: ## The index under AddressSanitizer and ThreadSanitizer
	$(SETUP_DEMO)
	$(XTASK) sanitize

schedules: ## The index's readers, writers and killed holders in many orders: SEED=9 SEEDS=1
	$(SETUP_DEMO)
	$(XTASK) schedules

dev: ## forebayd dev in the foreground
	$(SETUP_DEMO)
	$(XTASK) dev
