"""Parses the Rust source of a PyO3 module: exported classes and functions with their signatures."""

import re
from dataclasses import dataclass, field

EXPORT = re.compile(r"#\[pymodule_export\]\s*use crate::(\w+)::\{?([\w\s,]+)\}?;")
CLASS = re.compile(
    r"(?P<doc>(?:^///.*\n)*)^#\[pyclass(?P<options>[^\]]*)\]\n(?:^#\[.*\n)*"
    r"^pub\(crate\) struct (?P<name>\w+)",
    re.MULTILINE,
)
METHODS = re.compile(
    r"^#\[pymethods\]\nimpl(?:<[^>]*>)? (\w+)[^{]*\{\n(.*?)^\}", re.MULTILINE | re.DOTALL
)
FUNCTION = re.compile(
    r"(?P<doc>(?:^ *///.*\n)*)(?P<attributes>(?:^ *#\[(?:[^\[\]]|\[\])*\]\n)*)"
    r"^ *(?:pub\(crate\) )?fn (?P<name>[\w#]+)(?:<[^>]*>)?\((?P<parameters>[^{]*?)\)"
    r"(?: -> (?P<result>[^{]*?))? \{$",
    re.MULTILINE,
)
SIGNATURE = re.compile(r"signature = \((.*)\)\)\]", re.DOTALL)


@dataclass(frozen=True)
class Parameter:
    """A parameter as Python sees it; without a default, `default` is None."""

    name: str
    rust_type: str
    default: str | None
    is_keyword: bool


@dataclass(frozen=True)
class Function:
    """A function or method, with its documentation."""

    name: str
    doc: str
    kind: str  # "new", "getter", "staticmethod", "method" or "pyfunction"
    parameters: tuple[Parameter, ...]
    rust_result: str


@dataclass(frozen=True)
class Class:
    """A class: its name in Python and in Rust, and its methods."""

    name: str
    rust_name: str
    doc: str
    is_final: bool
    methods: list[Function] = field(default_factory=list)


def parse(sources: dict[str, str]) -> list[Class | Function]:
    """Return what the module exports, in the order of `lib.rs`."""
    found: dict[tuple[str, str], Class | Function] = {}
    for module, text in sources.items():
        text = text.partition("\n#[cfg(test)]")[0]
        classes = {one.rust_name: one for one in map(class_of, CLASS.finditer(text))}
        for rust_name, body in METHODS.findall(text):
            classes[rust_name].methods.extend(functions(body))
        found |= {(module, name): one for name, one in classes.items()}
        found |= {(module, one.name): one for one in functions(text) if one.kind == "pyfunction"}
    exports = [
        (module, name.strip())
        for module, names in EXPORT.findall(sources["lib"])
        for name in names.split(",")
    ]
    if unknown := [export for export in exports if export not in found]:
        raise SystemExit(f"clients/python/src: exports that the parser does not find: {unknown}")
    return [found[export] for export in exports]


def class_of(found: re.Match[str]) -> Class:
    """Return the class of a struct, without its methods."""
    named = re.search(r'\bname = "(\w+)"', found["options"])
    is_final = not re.search(r"\bsubclass\b", found["options"])
    name = named[1] if named else found["name"]
    return Class(name, found["name"], documentation(found["doc"]), is_final)


def functions(text: str) -> list[Function]:
    """Return the functions of a text that Python sees, without its operators."""
    found = map(function, FUNCTION.finditer(text))
    return [one for one in found if one.kind == "new" or not one.name.startswith("__")]


def function(found: re.Match[str]) -> Function:
    """Return a function from its head."""
    types = rust_types(found["parameters"])
    signature = SIGNATURE.search(found["attributes"])
    kinds = ("new", "getter", "staticmethod", "pyfunction")
    kind = next((kind for kind in kinds if f"#[{kind}]" in found["attributes"]), "method")
    name = "__new__" if kind == "new" else plain(found["name"])
    parameters = asked(signature[1], types) if signature else unasked(types)
    doc = documentation(found["doc"])
    return Function(name, doc, kind, parameters, found["result"] or "()")


def documentation(lines: str) -> str:
    """Return the text of a comment; what links in Rust is code."""
    text = "\n".join(line.strip().removeprefix("///").strip() for line in lines.splitlines())
    return re.sub(r"\[(`[^`]*`)\](?:\([^)]*\))?", r"\1", text)


def rust_types(parameters: str) -> dict[str, str]:
    """Return the Rust type of each parameter that Python passes."""
    types = {}
    for parameter in split(parameters):
        name, _, rust_type = parameter.partition(": ")
        if rust_type and not rust_type.startswith("Python<"):
            types[plain(name)] = rust_type
    return types


def asked(signature: str, types: dict[str, str]) -> tuple[Parameter, ...]:
    """Return the parameters of a signature, `a, *, b=None`."""
    parameters, is_keyword = [], False
    for entry in split(signature):
        name, has_default, default = entry.partition("=")
        if name == "*":
            is_keyword = True
            continue
        default_or_none = default if has_default else None
        parameters.append(Parameter(plain(name), types[plain(name)], default_or_none, is_keyword))
    return tuple(parameters)


def unasked(types: dict[str, str]) -> tuple[Parameter, ...]:
    """Return the parameters of a function without a signature."""
    return tuple(Parameter(name, rust_type, None, False) for name, rust_type in types.items())


def plain(name: str) -> str:
    """Return a name without the mark of a Rust keyword."""
    return name.removeprefix("r#")


def split(text: str) -> list[str]:
    """Return the parts of a list, separated at commas outside of brackets."""
    parts, depth, part = [], 0, ""
    for character in " ".join(text.split()):
        depth += (character in "([<{") - (character in ")]>}")
        if character == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += character
    return [part.strip() for part in [*parts, part] if part.strip()]
