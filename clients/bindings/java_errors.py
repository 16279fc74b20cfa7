"""Generates Java's enum of error codes, and an exception class for each code."""

from description import Description
from error_table import ErrorCode
from java_text import javadoc

CODES = """\
package io.forebay;

import java.util.function.Function;

/** The kind of a failure. */
public enum ErrorCode {{
{constants};

    private static final ErrorCode[] ALL = values();

    private final int number;
    private final String label;
    private final boolean retryable;
    private final Function<ForebayException.Failure, ForebayException> exceptions;

    ErrorCode(
            int number,
            String label,
            boolean retryable,
            Function<ForebayException.Failure, ForebayException> exceptions) {{
        this.number = number;
        this.label = label;
        this.retryable = retryable;
        this.exceptions = exceptions;
    }}

    /**
     * Returns the code's number, as on the wire and in the C ABI.
     *
     * @return a number from 1
     */
    public int number() {{
        return number;
    }}

    /**
     * Returns the code's name, as every language spells it.
     *
     * @return for example {{@code InvalidArgument}}
     */
    public String label() {{
        return label;
    }}

    /**
     * Returns whether a plain retry of the same call may succeed.
     *
     * @return true for {retryable}
     */
    public boolean isRetryable() {{
        return retryable;
    }}

    static ErrorCode of(int number) {{
        return number >= 1 && number <= ALL.length ? ALL[number - 1] : INTERNAL;
    }}

    /** Returns a new exception of the code's class. */
    ForebayException exception(ForebayException.Failure failure) {{
        return exceptions.apply(failure);
    }}
}}
"""

EXCEPTION = """\
package io.forebay;

{about}
public final class {label}Exception extends ForebayException {{
    private static final long serialVersionUID = 1L;

    {label}Exception(Failure failure) {{
        super(failure);
    }}
}}
"""


def codes(description: Description) -> str:
    """Return the text of `ErrorCode.java`."""
    links = [f"{{@link #{code.constant}}}" for code in description.errors if code.is_retryable]
    return CODES.format(
        constants=",\n\n".join(constant(description, code) for code in description.errors),
        retryable=f"{', '.join(links[:-1])} and {links[-1]}",
    )


def about(description: Description, code: ErrorCode) -> str:
    """Return the meaning of a code, with Java's note on it."""
    return " ".join(filter(None, [code.about, description.java_notes.get(code.constant)]))


def constant(description: Description, code: ErrorCode) -> str:
    """Return a code's constant of the enum."""
    retryable = str(code.is_retryable).lower()
    comment = javadoc("    ", about(description, code))
    made = f"{code.label}Exception::new"
    line = f'    {code.constant}({code.number}, "{code.label}", {retryable}, {made})'
    return f"{comment}\n{line}"


def exceptions(description: Description) -> dict[str, str]:
    """Return the text of each exception's file, by its name."""
    return {
        f"{code.label}Exception.java": EXCEPTION.format(
            about=javadoc("", about(description, code)), label=code.label
        )
        for code in description.errors
        if code.constant not in description.java_exceptions_special
    }
