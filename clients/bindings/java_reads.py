"""Generates Java's reads by keys without key objects, for each type of keys."""

import re

from description import Description
from java_text import INDENT, javadoc

READS = """\
package io.forebay;

import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The part of {{@link Reads}} that takes an int64, string or bytes key directly, without a {{@link
 * Key}}. Each read has the meaning of the read by a {{@link Key}}. A store with another type of
 * keys refuses the read with {{@link InvalidArgumentException}}, and so does a store that is
 * partitioned by a field, which needs {{@link Key#within}}.
 */
abstract class KeyedReads extends NativeReads {{
    KeyedReads(long reader, ReadOptions read) {{
        super(reader, read);
    }}

{one}

    // Reads of many documents, by int64 keys; for other keys, Keys.of avoids an object per key.

    /** Reads like {{@link Reads#getMany(FieldHandle, Keys)}}, by int64 keys. */
    public PackedValues getMany(FieldHandle field, long[] keys) {{
        return packed(field, BatchKeys.of(keys));
    }}

    /** Reads like {{@link Reads#getDocuments(Keys)}}, by int64 keys. */
    public List<DocumentAnswer> getDocuments(long[] keys) {{
        return documents(BatchKeys.of(keys));
    }}

{gathers}
}}
"""

GATHER = """\
{about}
    public void gather(
            GatherPlan plan,
            long[] keys,
            {values} values,
            byte @Nullable [] statuses,
            byte @Nullable [] cells) {{
        new Gather(this, plan, BatchKeys.of(keys), statuses, cells).into(values);
    }}"""

MATRICES = ("float[]", "double[]", "long[]", "ByteBuffer")


def reads(description: Description) -> str:
    """Return the text of `KeyedReads.java`."""
    one = [
        read(signature, value, key_type, about)
        for key_type, about in description.java_key_types.items()
        for signature, value in description.java_reads.items()
    ]
    gathers = [gather(values) for values in MATRICES]
    return READS.format(one="\n\n".join(one), gathers="\n\n".join(gathers))


def read(signature: str, value: str, key_type: str, about: str) -> str:
    """Return the read of a signature such as `long getLong(field, key, long fallback)`."""
    found = re.fullmatch(r"(.+) (\w+)\((.*)\)", signature)
    if found is None:
        raise SystemExit(f"bindings.toml: no signature of a read: {signature}")
    result, name, listed = found.groups()
    types = {"field": "FieldHandle", "key": "Key"}
    linked = [types.get(one) or one.split()[0] for one in listed.split(", ")]
    declared = [
        {"field": "FieldHandle field", "key": f"{key_type} key"}.get(one, one)
        for one in listed.split(", ")
    ]
    returned = re.sub(r"\bcall\b", "CallBuffer.with(key)", value)
    comment = f"Reads like {{@link Reads#{name}({', '.join(linked)})}}, by {about}."
    return (
        f"{javadoc(INDENT, comment)}\n"
        f"{INDENT}public {result} {name}({', '.join(declared)}) {{\n"
        f"{INDENT * 2}return {returned};\n{INDENT}}}"
    )


def gather(values: str) -> str:
    """Return the gather into a matrix."""
    link = f"Reads#gather(GatherPlan, Keys, {values}, byte[], byte[])"
    return GATHER.format(
        about=javadoc(INDENT, f"Works like {{@link {link}}}, by int64 keys."), values=values
    )
