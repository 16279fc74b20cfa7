"""The parsers read what the sources say, and refuse what they do not know."""

import c_header
import error_table
import java_reads
import java_text
import pytest
import rust_entry_points

HEADER = """
/* Wait of a read. */
enum { FB_WAIT_NOTHING = 0, FB_WAIT_TOKEN = 1 };
typedef struct fb_text {
    const uint8_t *data;
    uint64_t length;
} fb_text;
typedef struct fb_read {
    uint32_t wait; /* FB_WAIT_*; see fb_other() */
    fb_text token;
    uint32_t last;
} fb_read;
int32_t fb_reader_open(
    uint64_t client, fb_text name, const fb_read *read, fb_error *error);
void fb_free(fb_text *text);
"""

ERRORS = """
  // No error.
  ERROR_CODE_UNSPECIFIED = 0;
  // The service is not ready. Try
  // again. UNAVAILABLE, retry.
  ERROR_CODE_UNAVAILABLE = 1;
  // The deadline passed. DEADLINE_EXCEEDED, no retry by itself.
  ERROR_CODE_DEADLINE_EXCEEDED = 2;
"""


def test_header_is_parsed() -> None:
    """Prove that functions, constants and sizes are those of the C compiler."""
    header = c_header.parse(HEADER)
    opened, freed = header.functions
    assert [parameter.type for parameter in opened.parameters] == [
        "uint64_t",
        "fb_text",
        "fb_read*",
        "fb_error*",
    ]
    assert (opened.has_status, freed.has_status) == (True, False)
    assert [(group.about, group.constants) for group in header.groups] == [
        ("Wait of a read.", {"WAIT_NOTHING": 0, "WAIT_TOKEN": 1})
    ]
    assert header.struct_bytes == {"fb_text": 16, "fb_read": 32}


@pytest.mark.parametrize("line", ["uint8_t fb_odd(uint64_t id);", "int32_t fb_odd(int (*f)(int));"])
def test_unknown_declaration_is_refused(line: str) -> None:
    """Prove that no function is left out in silence."""
    with pytest.raises(SystemExit, match="fb_odd"):
        c_header.parse(HEADER + line)


def test_error_table_is_parsed() -> None:
    """Prove that a code's meaning and its retry come from its comment."""
    first, second = error_table.parse(ERRORS)
    assert (first.label, first.about) == ("Unavailable", "The service is not ready. Try again.")
    assert (second.label, second.about) == ("DeadlineExceeded", "The deadline passed.")
    assert (first.is_retryable, second.is_retryable) == (True, False)


def test_gap_and_comment_without_advice_are_refused() -> None:
    """Prove that a table that the parser does not understand is no table."""
    with pytest.raises(SystemExit, match="gap"):
        error_table.parse(ERRORS.replace("= 2", "= 3"))
    with pytest.raises(SystemExit, match="DEADLINE_EXCEEDED"):
        error_table.parse(ERRORS.replace(", no retry by itself", ""))


def test_reads_are_generated_for_each_key_type() -> None:
    """Prove that a signature becomes a method, and that its link is the read by a key object."""
    made = java_reads.read(
        "int getInt(field, key, int other)", "x(call, key)", "long", "an int64 key"
    )
    assert made == (
        "    /** Reads like {@link Reads#getInt(FieldHandle, Key, int)}, by an int64 key. */\n"
        "    public int getInt(FieldHandle field, long key, int other) {\n"
        "        return x(CallBuffer.with(key), key);\n"
        "    }"
    )


def test_text_becomes_an_address_and_a_length() -> None:
    """Prove that Java and Rust agree on the numbers of a call."""
    opened = c_header.parse(HEADER).functions[0]
    assert java_text.arguments(opened) == ["client", "name", "nameLength", "read", "error"]
    converted = [rust_entry_points.converted(parameter) for parameter in opened.parameters]
    assert converted == ["client as u64", "text(name, name_length)", "at(read)", "at(error)"]
