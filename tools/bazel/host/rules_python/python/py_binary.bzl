"""Stand-in for rules_python: one rule by itself."""

load(":defs.bzl", _py_binary = "py_binary")

py_binary = _py_binary
