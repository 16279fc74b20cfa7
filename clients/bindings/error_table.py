"""Parses the error table, the enum `ErrorCode` of `error.proto`."""

import re
from dataclasses import dataclass

ENTRY = re.compile(r"((?:  // .*\n)+)  ERROR_CODE_(\w+) = (\d+);")
# The last sentence of a comment: the gRPC status, and whether a retry may succeed.
ADVICE = re.compile(r" ?(?P<status>[A-Z_]+), (?P<retry>(?:no )?retry)[^.]*\.$")


@dataclass(frozen=True)
class ErrorCode:
    """A code: its name as in `NOT_FOUND`, its number, and what it means."""

    constant: str
    number: int
    about: str
    is_retryable: bool

    @property
    def label(self) -> str:
        """Return the name as every language spells it: `NotFound`."""
        return "".join(word.capitalize() for word in self.constant.split("_"))


def parse(text: str) -> tuple[ErrorCode, ...]:
    """Return the codes of a table, without the one for no error."""
    found = (entry(*parts.groups()) for parts in ENTRY.finditer(text))
    codes = tuple(code for code in found if code is not None)
    if [code.number for code in codes] != list(range(1, len(codes) + 1)):
        raise SystemExit("error.proto: the codes are not numbered from 1 without a gap")
    return codes


def entry(comment: str, constant: str, number: str) -> ErrorCode | None:
    """Return the code of an entry, or None for the entry of no error."""
    if number == "0":
        return None
    text = " ".join(line.strip().removeprefix("//").strip() for line in comment.splitlines())
    advice = ADVICE.search(text)
    if advice is None:
        raise SystemExit(f"error.proto: the comment of {constant} does not end with its advice")
    return ErrorCode(constant, int(number), text[: advice.start()], advice["retry"] == "retry")
