/* A whole document, copied out of a reader, or the columns of an event. */
package io.forebay;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * A document as of one moment: its fields by name. The columns of an {@link Event} form a
 * document without a version, which never expires. Immutable.
 */
public final class Document {
    private final @Nullable Instant expiresAt;
    private final OptionalLong version;
    private final Map<String, Values.EncodedValue> fields;

    private Document(
            @Nullable Instant expiresAt,
            OptionalLong version,
            Map<String, Values.EncodedValue> fields) {
        this.expiresAt = expiresAt;
        this.version = version;
        this.fields = fields;
    }

    /** Returns the columns of an event as a document. */
    static Document ofColumns(Map<String, Values.EncodedValue> columns) {
        return new Document(null, OptionalLong.empty(), columns);
    }

    static Document unpack(Unpacker packed) {
        Instant expiresAt = packed.instant();
        OptionalLong version = packed.optional();
        int count = packed.i32();
        Map<String, Values.EncodedValue> fields = new LinkedHashMap<>();
        for (int place = 0; place < count; place++) {
            String name = packed.text();
            packed.instant();
            fields.put(name, packed.value());
        }
        return new Document(expiresAt, version, fields);
    }

    /**
     * Returns the time at which the whole document expires.
     *
     * @return the time, or null for never
     */
    public @Nullable Instant expiresAt() {
        return expiresAt;
    }

    /**
     * Returns the document's version, in a store that keeps versions.
     *
     * @return the version, or empty
     */
    public OptionalLong version() {
        return version;
    }

    /**
     * Returns the names of the fields, including null fields, by ascending field id; for an event,
     * the names of the columns in the order of the select.
     *
     * @return the names
     */
    public Set<String> fields() {
        return Collections.unmodifiableSet(fields.keySet());
    }

    /**
     * Returns whether a field is absent, null or a value.
     *
     * @param field the field's current name
     * @return absent, null or a value
     */
    public Presence presence(String field) {
        Values.EncodedValue value = fields.get(field);
        if (value == null) {
            return Presence.ABSENT;
        }
        return value.type() == 0 ? Presence.NULL : Presence.VALUE;
    }

    /**
     * Returns a field's value: Boolean, Integer, Long, Float, Double, String, byte[], Instant,
     * List, float[], or byte[] for a vector of 8-bit integers.
     *
     * @param field the field's current name
     * @return a new object, or null if absent or null
     */
    public @Nullable Object value(String field) {
        Values.EncodedValue value = fields.get(field);
        if (value == null || value.type() == 0) {
            return null;
        }
        return Values.decode(new FieldType(value.type()), value.bytes().clone());
    }

    /**
     * Returns an integer, of 32 or 64 bits.
     *
     * @param field the field's current name
     * @param fallback the result if absent or null
     * @return the value
     * @throws InvalidArgumentException if the field is not an integer
     */
    public long getLong(String field, long fallback) {
        Values.EncodedValue value = fields.get(field);
        if (value == null || value.type() == 0) {
            return fallback;
        }
        return switch (value.type()) {
            case 2 -> buffer(value).getInt();
            case 3 -> buffer(value).getLong();
            default -> throw mistaken(field, value, "an integer");
        };
    }

    /**
     * Returns a float, of 32 or 64 bits.
     *
     * @param field the field's current name
     * @param fallback the result if absent or null
     * @return the value
     * @throws InvalidArgumentException if the field is not a float
     */
    public double getDouble(String field, double fallback) {
        Values.EncodedValue value = fields.get(field);
        if (value == null || value.type() == 0) {
            return fallback;
        }
        return switch (value.type()) {
            case 4 -> buffer(value).getFloat();
            case 5 -> buffer(value).getDouble();
            default -> throw mistaken(field, value, "a float");
        };
    }

    /**
     * Returns a string.
     *
     * @param field the field's current name
     * @return the value, or null if absent or null
     * @throws InvalidArgumentException if the field is not a string
     */
    public @Nullable String getString(String field) {
        Values.EncodedValue value = fields.get(field);
        if (value == null || value.type() == 0) {
            return null;
        }
        if (value.type() != FieldType.STRING.code()) {
            throw mistaken(field, value, "a string");
        }
        return new String(value.bytes(), StandardCharsets.UTF_8);
    }

    private static ByteBuffer buffer(Values.EncodedValue value) {
        return ByteBuffer.wrap(value.bytes()).order(ByteOrder.LITTLE_ENDIAN);
    }

    private static ForebayException mistaken(
            String field, Values.EncodedValue value, String wanted) {
        return ForebayException.of(
                ErrorCode.INVALID_ARGUMENT,
                "the field " + field + " is a " + new FieldType(value.type()) + ", not " + wanted);
    }
}
