"""Stand-in for rules_python: one rule by itself."""

load(":defs.bzl", _py_library = "py_library")

py_library = _py_library
