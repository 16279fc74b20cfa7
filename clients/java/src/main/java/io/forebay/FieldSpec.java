/* A field as its creator asks for it. */
package io.forebay;

import java.nio.ByteBuffer;
import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * A field of a store to be.
 *
 * @param name its name
 * @param type its type
 * @param fallback what a gather writes for absent and null: a boxed number or a float[]; or null
 * @param ttl time to live of each write that carries none, or null
 */
public record FieldSpec(
        String name, FieldType type, @Nullable Object fallback, @Nullable Duration ttl) {
    static final int BYTES = 56;

    /**
     * A field without default and time to live.
     *
     * @param name its name
     * @param type its type
     */
    public FieldSpec(String name, FieldType type) {
        this(name, type, null, null);
    }

    void encode(CallBuffer call, ByteBuffer buffer, int at) {
        Values.Encoded value = Values.of(fallback);
        call.text(buffer, at, name);
        buffer.putInt(at + 16, type.code());
        buffer.putInt(at + 24, value.type());
        call.text(buffer, at + 32, value.bytes());
        buffer.putLong(at + 48, Write.ttlMicros(ttl));
    }
}
