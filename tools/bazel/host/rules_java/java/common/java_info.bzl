"""Stand-in for rules_java: in Bazel 4 the provider is built in."""

load(":native.bzl", "NativeJavaInfo")

JavaInfo = NativeJavaInfo
