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

    private final FieldProperties properties;

    private FieldSpec(FieldProperties properties) {
        this.properties = properties;
    }

    /** The properties of a field specification, which change only before it is created. */
    private static final class FieldProperties {
        private final String name;
        private final FieldType type;
        private @Nullable Object fallback;
        private @Nullable Duration ttl;
        private boolean isRequired;
        private List<?> allowed = List.of();
        private @Nullable ColumnIndex index;

        private FieldProperties(String name, FieldType type) {
            this.name = name;
            this.type = type;
        }

        private FieldProperties(FieldProperties other) {
            this(other.name, other.type);
            fallback = other.fallback;
            ttl = other.ttl;
            isRequired = other.isRequired;
            allowed = other.allowed;
            index = other.index;
        }
    }

    /** Returns the same field with a change of its properties. */
    private FieldSpec with(Consumer<FieldProperties> change) {
        FieldProperties changed = new FieldProperties(properties);
        change.accept(changed);
        return new FieldSpec(changed);
    }

    /**
     * Specifies a field without a default, a time to live, rules and an index.
     *
     * @param name the name
     * @param type the type
     * @return the field specification
     */
    public static FieldSpec of(String name, FieldType type) {
        return new FieldSpec(new FieldProperties(name, type));
    }

    /**
     * Returns the same field with the value that a gather writes for absent and null.
     *
     * @param value a boxed number or a float[], or null for none. For a stream's column any value:
     *     the value of an event that does not name the column
     * @return the field specification
     */
    public FieldSpec fallback(@Nullable Object value) {
        return with(changed -> changed.fallback = value);
    }

    /**
     * Returns the same field with a time to live of each write without its own.
     *
     * @param time the time to live, or null for none
     * @return the field specification
     */
    public FieldSpec ttl(@Nullable Duration time) {
        return with(changed -> changed.ttl = time);
    }

    /**
     * Returns the same column, required or not: the stream refuses an event without a value of a
     * required column.
     *
     * @param required whether the column is required
     * @return the field specification
     */
    public FieldSpec required(boolean required) {
        return with(changed -> changed.isRequired = required);
    }

    /**
     * Returns the same column, restricted to these values.
     *
     * @param values the values that the stream accepts; empty for all
     * @return the field specification
     */
    public FieldSpec allowed(List<?> values) {
        List<?> copy = List.copyOf(values);
        return with(changed -> changed.allowed = copy);
    }

    /**
     * Returns the same scalar column with an index, by which a stream's retained events are found.
     *
     * @param other the index, or null
     * @return the field specification
     */
    public FieldSpec index(@Nullable ColumnIndex other) {
        return with(changed -> changed.index = other);
    }

    void encode(CallBuffer call, ByteBuffer buffer, int at) {
        Values.EncodedValue value = Values.of(properties.fallback);
        call.text(buffer, at, properties.name);
        buffer.putInt(at + 16, properties.type.code());
        buffer.putInt(at + 20, properties.isRequired ? 1 : 0);
        buffer.putInt(at + 24, value.type());
        call.text(buffer, at + 32, value.bytes());
        buffer.putLong(at + 48, Write.ttlMicros(properties.ttl));
        CallBuffer.Place places = call.allocate((long) VALUE_BYTES * properties.allowed.size());
        int place = places.at();
        for (Object one : properties.allowed) {
            Values.EncodedValue encoded = Values.of(one);
            places.buffer().putInt(place, encoded.type());
            call.text(places.buffer(), place + 8, encoded.bytes());
            place += VALUE_BYTES;
        }
        buffer.putLong(at + 56, places.address());
        buffer.putLong(at + 64, properties.allowed.size());
        buffer.putInt(at + 72, ColumnIndex.code(properties.index));
    }
}
