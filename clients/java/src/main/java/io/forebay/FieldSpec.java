/* Specifications of fields. */
package io.forebay;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A field of a store specification. Immutable; do not change an array that was given to it.
 *
 * <pre>{@code
 * FieldSpec city = FieldSpec.of("city", FieldType.STRING).required().index(ColumnIndex.EXACT);
 * }</pre>
 */
public final class FieldSpec {
    static final int BYTES = HeaderConstants.FIELD_SPEC_STRUCT_BYTES;

    private static final int VALUE_BYTES = HeaderConstants.VALUE_STRUCT_BYTES;

    private final String name;
    private final FieldType type;
    private final @Nullable Object fallback;
    private final @Nullable Duration ttl;
    private final boolean isRequired;
    private final List<?> allowed;
    private final @Nullable ColumnIndex index;

    private FieldSpec(
            String name,
            FieldType type,
            @Nullable Object fallback,
            @Nullable Duration ttl,
            boolean isRequired,
            List<?> allowed,
            @Nullable ColumnIndex index) {
        this.name = name;
        this.type = type;
        this.fallback = fallback;
        this.ttl = ttl;
        this.isRequired = isRequired;
        this.allowed = allowed;
        this.index = index;
    }

    /**
     * Specifies a field without a default, a time to live, rules and an index.
     *
     * @param name the name
     * @param type the type
     * @return the field specification
     */
    public static FieldSpec of(String name, FieldType type) {
        return new FieldSpec(name, type, null, null, false, List.of(), null);
    }

    /**
     * Returns the same field with the value that a gather writes for absent and null.
     *
     * @param value a boxed number or a float[], or null for none. For a stream's column any value:
     *     the value of an event that does not name the column
     * @return the field specification
     */
    public FieldSpec fallback(@Nullable Object value) {
        return new FieldSpec(name, type, value, ttl, isRequired, allowed, index);
    }

    /**
     * Returns the same field with a time to live of each write without its own.
     *
     * @param time the time to live, or null for none
     * @return the field specification
     */
    public FieldSpec ttl(@Nullable Duration time) {
        return new FieldSpec(name, type, fallback, time, isRequired, allowed, index);
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
     * @param values the values that the stream accepts; empty for all
     * @return the field specification
     */
    public FieldSpec allowed(List<?> values) {
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
