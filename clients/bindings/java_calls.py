"""Generates Java's calls of the native core: the interface, by JNI, and by foreign functions."""

from c_header import Function
from description import Description
from java_text import arguments, camel, declaration, invocation

INTERFACE = """\
package io.forebay;

/**
 * The functions of {{@code forebay.h}} over raw addresses. Each returns a status; 0 is success.
 * Structs are in off-heap memory that the caller keeps alive during the call; a text is an address
 * and a length.
 */
interface NativeCalls extends SpecialCalls {{
    /** The version of the ABI that this package uses. */
    int VERSION = {version};

{methods}
}}
"""

JNI = """\
package io.forebay;

import java.nio.ByteBuffer;
import org.jspecify.annotations.Nullable;

/** {{@link NativeCalls}} by JNI, for JDK 17 and later. */
final class JniCalls implements NativeCalls {{
{methods}
}}
"""

FOREIGN = """\
package io.forebay;

import java.lang.invoke.MethodHandle;

/**
 * {{@link NativeCalls}} by foreign functions, for JDK 22 and later; only such a JDK compiles this
 * file.
 */
final class ForeignCalls extends SpecialForeignCalls {{
{handles}

{methods}
}}
"""

FOREIGN_METHOD = """\
    @Override
{declaration}
        try {{
{invocation}
        }} catch (Throwable failure) {{
            throw ForebayException.broken(failure);
        }}
    }}"""


def method_name(description: Description, function: Function) -> str:
    """Return the name of a function's method: `fb_reader_field` is `readerField`."""
    named = description.java_names.get(function.name)
    return named or camel(function.name.removeprefix("fb_"))


def interface(description: Description) -> str:
    """Return the text of `NativeCalls.java`."""
    methods = [
        declaration(f"int {method_name(description, function)}", arguments(function), ";")
        for function in description.called
    ]
    return INTERFACE.format(version=description.abi_version, methods="\n\n".join(methods))


def jni(description: Description) -> str:
    """Return the text of `JniCalls.java`."""
    methods = [f"    public native {special};" for special in description.jni_special]
    methods += [
        declaration(
            f"public native int {method_name(description, function)}", arguments(function), ";"
        )
        for function in description.called
    ]
    return JNI.format(methods="\n\n".join(f"    @Override\n{method}" for method in methods))


def foreign(description: Description) -> str:
    """Return the text of `ForeignCalls.java`."""
    plain = [
        function
        for function in description.called
        if function.name not in description.foreign_special
    ]
    handles = [handle(description, function) for function in plain]
    methods = [foreign_method(description, function) for function in plain]
    return FOREIGN.format(handles="\n".join(handles), methods="\n\n".join(methods))


def handle_name(function: Function) -> str:
    """Return the name of a function's handle: `fb_reader_field` has `READER_FIELD`."""
    return function.name.removeprefix("fb_").upper()


def handle(description: Description, function: Function) -> str:
    """Return the constant for a function's handle."""
    name, count = method_name(description, function), len(arguments(function))
    return invocation(
        "    ",
        f"private static final MethodHandle {handle_name(function)} = handle",
        [f'"{name}"', str(count)],
    )


def foreign_method(description: Description, function: Function) -> str:
    """Return the method that calls a function, with null for environment and class."""
    names = arguments(function)
    return FOREIGN_METHOD.format(
        declaration=declaration(f"public int {method_name(description, function)}", names, " {"),
        invocation=invocation(
            " " * 12,
            f"return (int) {handle_name(function)}.invokeExact",
            ["0L", "0L", *names],
        ),
    )
