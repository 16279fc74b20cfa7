"""Parses `forebay.h`: functions, constants of anonymous enums and sizes of structs."""

import re
from dataclasses import dataclass

SCALAR_BYTES = {"uint8_t": 1, "int32_t": 4, "uint32_t": 4, "int64_t": 8, "uint64_t": 8, "double": 8}
POINTER_BYTES = 8

ENUM = re.compile(r"\n(?:/\* (?P<about>[^*]*) \*/\n)?enum \{(?P<body>[^}]*)\};")
STRUCT = re.compile(r"typedef struct (fb_\w+) \{(.*?)\} \1;", re.DOTALL)
FUNCTION = re.compile(r"\b(int32_t|void) (fb_\w+)\(([^()]*)\);")
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function; the type is without `const`, and ends with `*` for a pointer."""

    name: str
    type: str

    @property
    def is_pointer(self) -> bool:
        """Return whether the parameter is the address of something."""
        return self.type.endswith("*")

    @property
    def is_text(self) -> bool:
        """Return whether the parameter is an `fb_text`: an address and a length."""
        return self.type == "fb_text"


@dataclass(frozen=True)
class Function:
    """A function of the header."""

    name: str
    parameters: tuple[Parameter, ...]
    has_status: bool


@dataclass(frozen=True)
class ConstantGroup:
    """The constants of one enum; `about` is the comment before it, if that is one line."""

    about: str
    constants: dict[str, int]


@dataclass(frozen=True)
class Header:
    """The contents of the header that bindings need."""

    functions: tuple[Function, ...]
    groups: tuple[ConstantGroup, ...]
    struct_bytes: dict[str, int]


def parse(text: str) -> Header:
    """Return the contents of a header; refuse a line that is not understood."""
    bare = COMMENT.sub("", text)
    functions = tuple(function(*found.groups()) for found in FUNCTION.finditer(bare))
    declared = set(re.findall(r"\b(fb_\w+)\(", bare))
    if missed := declared - {function.name for function in functions}:
        raise SystemExit(f"forebay.h: declarations that the parser does not know: {missed}")
    return Header(functions, groups(text), struct_sizes(bare))


def function(result: str, name: str, parameters: str) -> Function:
    """Return a function from the parts of its declaration."""
    return Function(name, tuple(map(parameter, parameters.split(","))), result == "int32_t")


def parameter(declaration: str) -> Parameter:
    """Return the parameter of a declaration such as `const fb_key *key`."""
    found = re.fullmatch(r"(?:const )?(\w+) (\*?)(\w+)", " ".join(declaration.split()))
    if found is None:
        raise SystemExit(f"forebay.h: parameter that the parser does not know: {declaration}")
    return Parameter(found[3], found[1] + found[2])


def groups(text: str) -> tuple[ConstantGroup, ...]:
    """Return the constants, enum by enum."""
    found = []
    for enum in ENUM.finditer(text):
        entries = re.findall(r"FB_(\w+) = (\d+)", COMMENT.sub("", enum["body"]))
        constants = {name: int(value) for name, value in entries}
        found.append(ConstantGroup(" ".join((enum["about"] or "").split()), constants))
    return tuple(found)


def struct_sizes(bare: str) -> dict[str, int]:
    """Return the size of each struct, under the alignment of C."""
    sizes: dict[str, int] = {}
    alignments: dict[str, int] = {}
    for name, body in STRUCT.findall(bare):
        at, widest = 0, 1
        for member in filter(None, map(str.strip, body.split(";"))):
            kind = member.removeprefix("const ").split()[0]
            if "*" in member:
                size = alignment = POINTER_BYTES
            else:
                size = sizes.get(kind) or SCALAR_BYTES[kind]
                alignment = alignments.get(kind, size)
            at = -(-at // alignment) * alignment + size
            widest = max(widest, alignment)
        sizes[name], alignments[name] = -(-at // widest) * widest, widest
    return sizes


def status_codes(text: str) -> dict[str, int]:
    """Return the failures of `fb_status`, by their names without the prefix."""
    found = re.search(r"typedef enum fb_status \{([^}]*)\}", text)
    entries = re.findall(r"FB_(\w+) = (\d+)", found[1] if found else "")
    return {name: int(value) for name, value in entries if value != "0"}
