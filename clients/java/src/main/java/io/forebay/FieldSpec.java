/* Specifications of fields. */
package io.forebay;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A field of a store specification.
 *
 * @param name the name
 * @param type the type
 * @param fallback the value that a gather writes for absent and null: a boxed number or a float[];
 *     or null. For a stream's column any value: the value of an event that does not name the column
 * @param ttl time to live of each write without its own, or null
 * @param isRequired whether a stream refuses events without a value
 * @param allowed the values that a stream accepts; empty for all
 * @param index the index of a stream's column, or null
 */
public record FieldSpec(
        String name,
        FieldType type,
        @Nullable Object fallback,
        @Nullable Duration ttl,
        boolean isRequired,
        List<?> allowed,
        @Nullable ColumnIndex index) {
    static final int BYTES = HeaderConstants.FIELD_SPEC_STRUCT_BYTES;

    private static final int VALUE_BYTES = HeaderConstants.VALUE_STRUCT_BYTES;

    /**
     * Creates a field without default and time to live.
     *
     * @param name the name
     * @param type the type
     */
    public FieldSpec(String name, FieldType type) {
        this(name, type, null, null);
    }

    /**
     * Creates a field of documents.
     *
     * @param name the name
     * @param type the type
     * @param fallback the value that a gather writes for absent and null, or null
     * @param ttl time to live of each write without its own, or null
     */
    public FieldSpec(
            String name, FieldType type, @Nullable Object fallback, @Nullable Duration ttl) {
        this(name, type, fallback, ttl, false, List.of(), null);
    }

    /**
     * Returns the same column as a required column: the stream refuses an event without a value.
     *
     * @return the field specification
     */
    public FieldSpec required() {
        return new FieldSpec(name, type, fallback, ttl, true, allowed, index);
    }

    /**
     * Returns the same column, restricted to these values.
     *
     * @param values the values
     * @return the field specification
     */
    public FieldSpec allowing(List<?> values) {
        return new FieldSpec(name, type, fallback, ttl, isRequired, List.copyOf(values), index);
    }

    /**
     * Returns the same scalar column with an index, by which a stream's retained events are found.
     *
     * @param other the index, or null
     * @return the field specification
     */
    public FieldSpec index(@Nullable ColumnIndex other) {
        return new FieldSpec(name, type, fallback, ttl, isRequired, allowed, other);
    }

    void encode(CallBuffer call, ByteBuffer buffer, int at) {
        Values.EncodedValue value = Values.of(fallback);
        call.text(buffer, at, name);
        buffer.putInt(at + 16, type.code());
        buffer.putInt(at + 20, isRequired ? 1 : 0);
        buffer.putInt(at + 24, value.type());
        call.text(buffer, at + 32, value.bytes());
        buffer.putLong(at + 48, Write.ttlMicros(ttl));
        CallBuffer.Place places = call.allocate((long) VALUE_BYTES * allowed.size());
        int place = places.at();
        for (Object one : allowed) {
            Values.EncodedValue encoded = Values.of(one);
            places.buffer().putInt(place, encoded.type());
            call.text(places.buffer(), place + 8, encoded.bytes());
            place += VALUE_BYTES;
        }
        buffer.putLong(at + 56, places.address());
        buffer.putLong(at + 64, allowed.size());
        buffer.putInt(at + 72, ColumnIndex.code(index));
    }
}
