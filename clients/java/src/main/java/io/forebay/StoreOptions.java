/* Options of a store. */
package io.forebay;

import java.nio.ByteBuffer;
import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * A store's options. Setting the options replaces all of them: to change one, take the others from
 * the definition.
 *
 * @param ttl time to live of documents whose put has none, or null
 * @param versioned whether the store keeps each document's version, which a write's {@code
 *     ifVersion} needs
 * @param heartbeat silence after which a heartbeat is appended
 * @param logWindow how much of the store's logs is retained after its newest snapshot, in whole
 *     microseconds, not below 0 and at most 100 years; older entries are trimmed. Null retains all
 *     entries, as does a store without snapshots. For a stream, which has no snapshots, the time
 *     for which its events are retained
 * @param logBytes approximate bytes of events that each partition of a stream retains; 0 for all,
 *     as every store of documents has it
 */
public record StoreOptions(
        @Nullable Duration ttl,
        boolean versioned,
        Duration heartbeat,
        @Nullable Duration logWindow,
        long logBytes) {
    static final int BYTES = HeaderConstants.STORE_OPTIONS_STRUCT_BYTES;

    /** No time to live, no versions, a heartbeat each second, all of the logs. */
    public static final StoreOptions DEFAULT =
            new StoreOptions(null, false, Duration.ofSeconds(1), null, 0);

    /**
     * Returns the same options with another time to live.
     *
     * @param time time to live of documents whose put has none, or null
     * @return the options
     */
    public StoreOptions ttl(@Nullable Duration time) {
        return new StoreOptions(time, versioned, heartbeat, logWindow, logBytes);
    }

    /**
     * Returns the same options, with or without versions.
     *
     * @param isVersioned whether the store keeps each document's version
     * @return the options
     */
    public StoreOptions versioned(boolean isVersioned) {
        return new StoreOptions(ttl, isVersioned, heartbeat, logWindow, logBytes);
    }

    /**
     * Returns the same options with another heartbeat.
     *
     * @param silence silence after which a heartbeat is appended
     * @return the options
     */
    public StoreOptions heartbeat(Duration silence) {
        return new StoreOptions(ttl, versioned, silence, logWindow, logBytes);
    }

    /**
     * Returns the same options with another window of the logs.
     *
     * @param window how much is retained after the newest snapshot, or null for all
     * @return the options
     */
    public StoreOptions logWindow(@Nullable Duration window) {
        return new StoreOptions(ttl, versioned, heartbeat, window, logBytes);
    }

    /**
     * Returns the same options with another bound of the retained events of a stream.
     *
     * @param bytes approximate bytes of events that each partition retains; 0 for all
     * @return the options
     */
    public StoreOptions logBytes(long bytes) {
        return new StoreOptions(ttl, versioned, heartbeat, logWindow, bytes);
    }

    void encode(ByteBuffer buffer, int at) {
        buffer.putLong(at, Write.ttlMicros(ttl));
        buffer.putInt(at + 8, (int) Math.min(Integer.MAX_VALUE, ReadOptions.millis(heartbeat)));
        buffer.putInt(at + 12, versioned ? 1 : 0);
        buffer.putLong(
                at + 16, Write.micros(logWindow, "the log window is below 0; give 0 or more"));
        if (logBytes < 0) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT, "the bound of bytes is below 0; give 0 or more");
        }
        buffer.putLong(at + 24, logBytes);
    }
}
