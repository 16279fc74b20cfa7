"""Stand-in for rules_python: the rules are built into Bazel 4, and run on the toolchain of @pypi,
an interpreter that sees only the packages that a target declares.
"""

_ENVIRONMENT = {
    # The program's folder, which is the source tree through a link, must not be an import path.
    "PYTHONSAFEPATH": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}

def py_library(name, data = [], pyi_srcs = [], **attributes):
    """A library, including its types for tools that read them; rules_python separates these.

    Args:
      name: its name
      data: files that it reads
      pyi_srcs: its types
      **attributes: as in rules_python
    """
    native.py_library(name = name, data = data + pyi_srcs, **attributes)

def py_binary(name, env = {}, **attributes):
    """A program.

    Args:
      name: its name
      env: variables of its environment
      **attributes: as in rules_python
    """
    native.py_binary(name = name, env = dict(_ENVIRONMENT, **env), **attributes)

def py_test(name, env = {}, **attributes):
    """A test: a program that succeeds with exit code 0.

    Args:
      name: its name
      env: variables of its environment
      **attributes: as in rules_python
    """
    native.py_test(name = name, env = dict(_ENVIRONMENT, **env), **attributes)
