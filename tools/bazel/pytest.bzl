"""pytest under Bazel: `pytest_test` runs pytest on the files that it names."""

load("@rules_python//python:defs.bzl", "py_test")

_MAIN = "//tools/bazel:pytest_main.py"

def pytest_test(
        name,
        srcs,
        data = [],
        deps = [],
        env = {},
        programs = [],
        size = "small",
        tags = [],
        timeout = None):
    """A test of Python files, run by pytest; a test without test cases fails.

    Args:
      name: its name
      srcs: the files with tests; conftest.py and helpers belong in a library, in deps
      data: files that the tests read
      deps: the imports of the tests, including their folder's conftest.py; pytest is implicit
      env: variables of its environment
      programs: programs and libraries that are put into the folder that FOREBAY_BIN names
      size: as for every test
      tags: as for every test
      timeout: as for every test
    """
    py_test(
        name = name,
        size = size,
        timeout = timeout,
        srcs = srcs + [_MAIN],
        args = ["--program=$(rootpath %s)" % program for program in programs] +
               ["$(rootpath %s)" % source for source in srcs],
        data = data + programs,
        env = env,
        # An empty __init__.py above a package would hide it from its importers.
        legacy_create_init = 0,
        main = _MAIN,
        tags = tags,
        deps = deps + ["@pypi//pytest"],
    )
