/* A field as its creator asks for it. */
package io.forebay;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A field of a store to be.
 *
 * @param name its name
 * @param type its type
 * @param fallback what a gather writes for absent and null: a boxed number or a float[]; or null.
 *     Of a stream's column any value: what an event that does not name the column has
 * @param ttl time to live of each write that carries none, or null
 * @param isRequired whether a stream refuses events without a value of it
 * @param allowed the values that a stream lets in; empty for all
 * @param index how a stream's retained events are found by it, or null
 */
public record FieldSpec(
        String name,
        FieldType type,
        @Nullable Object fallback,
        @Nullable Duration ttl,
        boolean isRequired,
        List<?> allowed,
        @Nullable ColumnIndex index) {
    static final int BYTES = 80;

    private static final int VALUE_BYTES = 24;

    /**
     * A field without default and time to live.
     *
     * @param name its name
     * @param type its type
     */
    public FieldSpec(String name, FieldType type) {
        this(name, type, null, null);
    }

    /**
     * A field of documents.
     *
     * @param name its name
     * @param type its type
     * @param fallback what a gather writes for absent and null, or null
     * @param ttl time to live of each write that carries none, or null
     */
    public FieldSpec(
            String name, FieldType type, @Nullable Object fallback, @Nullable Duration ttl) {
        this(name, type, fallback, ttl, false, List.of(), null);
    }

    /**
     * The same column, without a value of which a stream refuses an event.
     *
     * @return the field to be
     */
    public FieldSpec required() {
        return new FieldSpec(name, type, fallback, ttl, true, allowed, index);
    }

    /**
     * The same column, of which a stream lets only these values in.
     *
     * @param values the values
     * @return the field to be
     */
    public FieldSpec allowing(List<?> values) {
        return new FieldSpec(name, type, fallback, ttl, isRequired, List.copyOf(values), index);
    }

    /**
     * The same scalar column, by which a stream's retained events are found.
     *
     * @param other how they are, or null
     * @return the field to be
     */
    public FieldSpec index(@Nullable ColumnIndex other) {
        return new FieldSpec(name, type, fallback, ttl, isRequired, allowed, other);
    }

    void encode(CallBuffer call, ByteBuffer buffer, int at) {
        Values.Encoded value = Values.of(fallback);
        call.text(buffer, at, name);
        buffer.putInt(at + 16, type.code());
        buffer.putInt(at + 20, isRequired ? 1 : 0);
        buffer.putInt(at + 24, value.type());
        call.text(buffer, at + 32, value.bytes());
        buffer.putLong(at + 48, Write.ttlMicros(ttl));
        CallBuffer.Place places = call.allocate((long) VALUE_BYTES * allowed.size());
        int place = places.at();
        for (Object one : allowed) {
            Values.Encoded encoded = Values.of(one);
            places.buffer().putInt(place, encoded.type());
            call.text(places.buffer(), place + 8, encoded.bytes());
            place += VALUE_BYTES;
        }
        buffer.putLong(at + 56, places.address());
        buffer.putLong(at + 64, allowed.size());
        buffer.putInt(at + 72, ColumnIndex.code(index));
    }
}
