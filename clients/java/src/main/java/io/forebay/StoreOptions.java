/* What a store does beside holding fields. */
package io.forebay;

import java.nio.ByteBuffer;
import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * A store's options.
 *
 * @param ttl time to live of documents whose put carries none, or null
 * @param versioned whether it keeps each document's version, which a write's {@code ifVersion}
 *      needs
 * @param heartbeat silence after which a heartbeat is appended
 */
public record StoreOptions(@Nullable Duration ttl, boolean versioned, Duration heartbeat) {
    /** No time to live, no versions, a heartbeat each second. */
    public static final StoreOptions DEFAULT = new StoreOptions(null, false, Duration.ofSeconds(1));

    void encode(ByteBuffer buffer, int at) {
        buffer.putLong(at, Write.ttlMicros(ttl));
        buffer.putInt(at + 8, (int) Math.min(Integer.MAX_VALUE, Read.millis(heartbeat)));
        buffer.putInt(at + 12, versioned ? 1 : 0);
    }
}
