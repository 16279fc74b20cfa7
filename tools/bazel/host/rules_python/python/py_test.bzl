"""Stand-in for rules_python: one rule by itself."""

load(":defs.bzl", _py_test = "py_test")

py_test = _py_test
