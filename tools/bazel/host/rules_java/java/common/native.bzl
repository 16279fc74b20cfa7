"""Bazel 4's own JavaInfo, under a name that a file may load and re-export."""

NativeJavaInfo = JavaInfo
