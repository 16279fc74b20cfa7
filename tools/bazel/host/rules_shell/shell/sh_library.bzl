"""Stand-in for rules_shell: in Bazel 4 the rule is built in."""

sh_library = native.sh_library
