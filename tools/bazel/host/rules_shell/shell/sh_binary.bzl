"""Stand-in for rules_shell: in Bazel 4 the rule is built in."""

sh_binary = native.sh_binary
