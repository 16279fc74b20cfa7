"""Repositories whose content a script of this folder derives from the machine's own tools.

A script runs in the new repository's folder with the path of the tree as its argument, and writes
the repository's files there. With the second argument `--inputs` a script only prints the labels of
more files whose change makes Bazel run the script again. Bazel starts a rule again when the rule
asks for a label whose package is not loaded, so a rule asks for all labels before the script works.
"""

_SECONDS_MAX = 3600

def _host_repository_impl(repository):
    root = repository.path(Label("@//:MODULE.bazel")).dirname
    for label in repository.attr.inputs:
        repository.path(label)  # A path asked for is a file watched.
    if repository.attr.names_inputs:
        for label in _run(repository, [root, "--inputs"]).splitlines():
            repository.path(Label("@" + label))
    _run(repository, [root])

def _run(repository, arguments):
    script = repository.path(repository.attr.script)
    result = repository.execute(
        ["python3", script] + arguments,
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
    return result.stdout

_ATTRIBUTES = {
    "inputs": attr.label_list(doc = "Files whose change makes the script run again."),
    "names_inputs": attr.bool(doc = "Whether the script names more inputs."),
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

def host_repository(name, script, inputs, names_inputs = False, volatile = False):
    """A repository that a script of this folder writes.

    Args:
      name: its name in labels
      script: the Python program
      inputs: the files whose change makes the program run again
      names_inputs: whether the program, with `--inputs`, prints the labels of more such files
      volatile: whether it runs at each start of Bazel's server as well
    """
    rule = _volatile_repository if volatile else _kept_repository
    rule(name = name, inputs = inputs, names_inputs = names_inputs, script = script)
