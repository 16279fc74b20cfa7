"""Generates Java's constants of the header: the enums, and the sizes of the structs."""

from c_header import ConstantGroup
from description import Description
from java_text import javadoc

CONSTANTS = """\
package io.forebay;

/** The constants of {{@code forebay.h}}, without the prefix, and the sizes of its structs. */
final class HeaderConstants {{
    private HeaderConstants() {{}}

{groups}
}}
"""


def constants(description: Description) -> str:
    """Return the text of `HeaderConstants.java`."""
    found = [lines(group) for group in description.header.groups]
    sizes = {
        name.removeprefix("fb_").upper() + "_STRUCT_BYTES": size
        for name, size in description.header.struct_bytes.items()
    }
    found.append(lines(ConstantGroup("Sizes of the structs.", sizes)))
    return CONSTANTS.format(groups="\n\n".join(found))


def lines(group: ConstantGroup) -> str:
    """Return the constants of a group, under its comment."""
    text = [javadoc("    ", group.about)] if group.about else []
    text += [f"    static final int {name} = {value};" for name, value in group.constants.items()]
    return "\n".join(text)
