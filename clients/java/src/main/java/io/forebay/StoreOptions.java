/* What a store does beside holding fields. */
package io.forebay;

import java.nio.ByteBuffer;
import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * A store's options. Setting them replaces all: to change one, take the others from the definition.
 *
 * @param ttl time to live of documents whose put carries none, or null
 * @param versioned whether it keeps each document's version, which a write's {@code ifVersion}
 *      needs
 * @param heartbeat silence after which a heartbeat is appended
 * @param logWindow how much of the store's logs is kept behind its newest snapshot, in whole
 *      microseconds, not below 0 and at most 100 years; what is older is trimmed. Null keeps all,
 *      and so it is where nobody makes snapshots. Of a stream, which has no snapshots, it is how
 *      long its events are retained
 * @param logBytes how many bytes of events each partition of a stream retains, about; 0 for all,
 *      as every store of documents has it
 */
public record StoreOptions(
        @Nullable Duration ttl,
        boolean versioned,
        Duration heartbeat,
        @Nullable Duration logWindow,
        long logBytes) {
    static final int BYTES = 32;

    /** No time to live, no versions, a heartbeat each second, all of the logs. */
    public static final StoreOptions DEFAULT = new StoreOptions(null, false, Duration.ofSeconds(1));

    /**
     * Options that keep all of the store's logs.
     *
     * @param ttl time to live of documents whose put carries none, or null
     * @param versioned whether it keeps each document's version
     * @param heartbeat silence after which a heartbeat is appended
     */
    public StoreOptions(@Nullable Duration ttl, boolean versioned, Duration heartbeat) {
        this(ttl, versioned, heartbeat, null, 0);
    }

    /**
     * The same options, with another window of the logs.
     *
     * @param window how much is kept behind the newest snapshot, or null for all
     * @return the options
     */
    public StoreOptions logWindow(@Nullable Duration window) {
        return new StoreOptions(ttl, versioned, heartbeat, window, logBytes);
    }

    /**
     * The same options, with another bound of the events that a stream retains.
     *
     * @param bytes how many bytes of them each partition retains, about; 0 for all
     * @return the options
     */
    public StoreOptions logBytes(long bytes) {
        return new StoreOptions(ttl, versioned, heartbeat, logWindow, bytes);
    }

    void encode(ByteBuffer buffer, int at) {
        buffer.putLong(at, Write.ttlMicros(ttl));
        buffer.putInt(at + 8, (int) Math.min(Integer.MAX_VALUE, Read.millis(heartbeat)));
        buffer.putInt(at + 12, versioned ? 1 : 0);
        buffer.putLong(at + 16, Write.micros(logWindow, "a log window is not below 0"));
        if (logBytes < 0) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT, "a bound of bytes is not below 0");
        }
        buffer.putLong(at + 24, logBytes);
    }
}
