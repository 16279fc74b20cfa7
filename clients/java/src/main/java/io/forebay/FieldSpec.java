/* Specifications of fields. */
package io.forebay;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * A field of a store specification. Immutable; do not change an array that was given to it.
 *
 * <pre>{@code
 * FieldSpec city = FieldSpec.of("city", FieldType.STRING).required(true).index(ColumnIndex.EXACT);
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

    private FieldSpec(Builder builder) {
        name = builder.name;
        type = builder.type;
        fallback = builder.fallback;
        ttl = builder.ttl;
        isRequired = builder.isRequired;
        allowed = builder.allowed;
        index = builder.index;
    }

    /** The properties of a field specification before it is created. */
    private static final class Builder {
        private final String name;
        private final FieldType type;
        private @Nullable Object fallback;
        private @Nullable Duration ttl;
        private boolean isRequired;
        private List<?> allowed = List.of();
        private @Nullable ColumnIndex index;

        private Builder(String name, FieldType type) {
            this.name = name;
            this.type = type;
        }
    }

    /** Returns the same field with a change of its properties. */
    private FieldSpec with(Consumer<Builder> change) {
        Builder builder = new Builder(name, type);
        builder.fallback = fallback;
        builder.ttl = ttl;
        builder.isRequired = isRequired;
        builder.allowed = allowed;
        builder.index = index;
        change.accept(builder);
        return new FieldSpec(builder);
    }

    /**
     * Specifies a field without a default, a time to live, rules and an index.
     *
     * @param name the name
     * @param type the type
     * @return the field specification
     */
    public static FieldSpec of(String name, FieldType type) {
        return new FieldSpec(new Builder(name, type));
    }

    /**
     * Returns the same field with the value that a gather writes for absent and null.
     *
     * @param value a boxed number or a float[], or null for none. For a stream's column any value:
     *     the value of an event that does not name the column
     * @return the field specification
     */
    public FieldSpec fallback(@Nullable Object value) {
        return with(builder -> builder.fallback = value);
    }

    /**
     * Returns the same field with a time to live of each write without its own.
     *
     * @param time the time to live, or null for none
     * @return the field specification
     */
    public FieldSpec ttl(@Nullable Duration time) {
        return with(builder -> builder.ttl = time);
    }

    /**
     * Returns the same column, required or not: the stream refuses an event without a value of a
     * required column.
     *
     * @param required whether the column is required
     * @return the field specification
     */
    public FieldSpec required(boolean required) {
        return with(builder -> builder.isRequired = required);
    }

    /**
     * Returns the same column, restricted to these values.
     *
     * @param values the values that the stream accepts; empty for all
     * @return the field specification
     */
    public FieldSpec allowed(List<?> values) {
        List<?> copy = List.copyOf(values);
        return with(builder -> builder.allowed = copy);
    }

    /**
     * Returns the same scalar column with an index, by which a stream's retained events are found.
     *
     * @param other the index, or null
     * @return the field specification
     */
    public FieldSpec index(@Nullable ColumnIndex other) {
        return with(builder -> builder.index = other);
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
