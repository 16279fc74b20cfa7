"""Stand-in for rules_python: the rules are built into Bazel 4, and run on the toolchain of @pypi,
an interpreter that sees no packages but those that a target declares.
"""

_ENVIRONMENT = {
    # The folder of the program, which is the source tree behind a link, is no import path.
    "PYTHONSAFEPATH": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}

def py_library(name, data = [], pyi_srcs = [], **attributes):
    """A library. Types come with it, for tools that read them; rules_python keeps them apart.

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
    """A test, which is a program that ends with 0 when all is well.

    Args:
      name: its name
      env: variables of its environment
      **attributes: as in rules_python
    """
    native.py_test(name = name, env = dict(_ENVIRONMENT, **env), **attributes)
