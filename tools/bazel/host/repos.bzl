"""Repositories whose content a script of this folder derives from the machine's own tools.

A script runs in the new repository's folder with the path of the tree as its argument, and writes
the repository's files there. Each line `watch LABEL` on its standard output names one more file
whose change makes Bazel run the script again.
"""

_SECONDS_MAX = 3600

def _host_repository_impl(repository):
    root = repository.path(Label("@//:MODULE.bazel")).dirname
    for label in repository.attr.inputs:
        repository.path(label)  # A path asked for is a file watched.
    script = repository.path(repository.attr.script)
    result = repository.execute(
        ["python3", script, root],
        timeout = _SECONDS_MAX,
        quiet = False,
    )
    if result.return_code != 0:
        fail("@%s: %s failed (%d)\n%s" % (
            repository.name,
            script.basename,
            result.return_code,
            result.stderr,
        ))
    for line in result.stdout.splitlines():
        if line.startswith("watch "):
            repository.path(Label("@" + line[len("watch "):]))

_ATTRIBUTES = {
    "inputs": attr.label_list(doc = "Files whose change makes the script run again."),
    "script": attr.label(doc = "The Python program that writes the repository.", mandatory = True),
}

_ENVIRONMENT = ["CARGO_TARGET_DIR", "JAVA_HOME", "PATH", "RUSTUP_TOOLCHAIN"]

_kept_repository = repository_rule(
    implementation = _host_repository_impl,
    attrs = _ATTRIBUTES,
    environ = _ENVIRONMENT,
)

_volatile_repository = repository_rule(
    implementation = _host_repository_impl,
    attrs = _ATTRIBUTES,
    environ = _ENVIRONMENT,
    local = True,
)

def host_repository(name, script, inputs, volatile = False):
    """A repository that a script of this folder writes.

    Args:
      name: its name in labels
      script: the Python program
      inputs: the files whose change makes the program run again
      volatile: whether it runs at each start of Bazel's server as well
    """
    rule = _volatile_repository if volatile else _kept_repository
    rule(name = name, inputs = inputs, script = script)
