/* Options of a store. */
package io.forebay;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A store's options. Immutable. Setting the options replaces all of them: to change one, begin with
 * {@link #toBuilder} of the definition's options.
 *
 * <pre>{@code
 * StoreOptions options =
 *         StoreOptions.builder().versioned(true).logRetention(Duration.ofDays(1)).build();
 * }</pre>
 */
public final class StoreOptions {
    static final int BYTES = HeaderConstants.STORE_OPTIONS_STRUCT_BYTES;

    /** No time to live, no versions, a heartbeat each second, all of the logs. */
    public static final StoreOptions DEFAULT = builder().build();

    private final @Nullable Duration ttl;
    private final boolean versioned;
    private final Duration heartbeat;
    private final @Nullable Duration logRetention;
    private final long logRetentionBytes;

    private StoreOptions(Builder builder) {
        ttl = builder.ttl;
        versioned = builder.versioned;
        heartbeat = builder.heartbeat;
        logRetention = builder.logRetention;
        logRetentionBytes = builder.logRetentionBytes;
    }

    /**
     * Returns a builder of options, which begins with the defaults.
     *
     * @return the builder
     */
    public static Builder builder() {
        return new Builder();
    }

    /**
     * Returns a builder of options, which begins with these options.
     *
     * @return the builder
     */
    public Builder toBuilder() {
        Builder builder = new Builder();
        builder.ttl = ttl;
        builder.versioned = versioned;
        builder.heartbeat = heartbeat;
        builder.logRetention = logRetention;
        builder.logRetentionBytes = logRetentionBytes;
        return builder;
    }

    /** Builds options. Belongs to one thread. */
    public static final class Builder {
        private @Nullable Duration ttl;
        private boolean versioned;
        private Duration heartbeat = Duration.ofSeconds(1);
        private @Nullable Duration logRetention;
        private long logRetentionBytes;

        private Builder() {}

        /**
         * Sets the time to live of documents whose put has none.
         *
         * @param time the time to live, or null for none; null unless set
         * @return this builder
         */
        public Builder ttl(@Nullable Duration time) {
            ttl = time;
            return this;
        }

        /**
         * Sets whether the store keeps each document's version, which a write's {@code ifVersion}
         * needs.
         *
         * @param isVersioned whether the store keeps versions; false unless set
         * @return this builder
         */
        public Builder versioned(boolean isVersioned) {
            versioned = isVersioned;
            return this;
        }

        /**
         * Sets the silence after which a heartbeat is appended.
         *
         * @param silence the silence, in whole milliseconds; 1 s unless set
         * @return this builder
         */
        public Builder heartbeat(Duration silence) {
            heartbeat = silence;
            return this;
        }

        /**
         * Sets how much of the store's logs is retained after its newest snapshot; older entries
         * are trimmed. A store without snapshots retains all entries. For a stream, which has no
         * snapshots, the span is the time for which its events are retained.
         *
         * @param retention the span, in whole microseconds, not below 0 and at most 100 years, or
         *     null for all entries; null unless set
         * @return this builder
         */
        public Builder logRetention(@Nullable Duration retention) {
            logRetention = retention;
            return this;
        }

        /**
         * Sets how many bytes of events each partition of a stream retains.
         *
         * @param bytes the approximate bytes; 0 for all, as every store of documents has it, and
         *     unless set
         * @return this builder
         */
        public Builder logRetentionBytes(long bytes) {
            logRetentionBytes = bytes;
            return this;
        }

        /**
         * Returns the options; the builder can be used further.
         *
         * @return the options
         */
        public StoreOptions build() {
            return new StoreOptions(this);
        }
    }

    /**
     * Returns the time to live of documents whose put has none.
     *
     * @return the time to live, or null
     */
    public @Nullable Duration ttl() {
        return ttl;
    }

    /**
     * Returns whether the store keeps each document's version.
     *
     * @return whether the store keeps versions
     */
    public boolean versioned() {
        return versioned;
    }

    /**
     * Returns the silence after which a heartbeat is appended.
     *
     * @return the silence
     */
    public Duration heartbeat() {
        return heartbeat;
    }

    /**
     * Returns how much of the logs is retained after the newest snapshot.
     *
     * @return the span, or null for all entries
     */
    public @Nullable Duration logRetention() {
        return logRetention;
    }

    /**
     * Returns how many bytes of events each partition of a stream retains.
     *
     * @return the approximate bytes; 0 for all
     */
    public long logRetentionBytes() {
        return logRetentionBytes;
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return other instanceof StoreOptions that
                && Objects.equals(ttl, that.ttl)
                && versioned == that.versioned
                && heartbeat.equals(that.heartbeat)
                && Objects.equals(logRetention, that.logRetention)
                && logRetentionBytes == that.logRetentionBytes;
    }

    @Override
    public int hashCode() {
        return Objects.hash(ttl, versioned, heartbeat, logRetention, logRetentionBytes);
    }

    @Override
    public String toString() {
        return String.format(
                "StoreOptions[ttl=%s, versioned=%s, heartbeat=%s, logRetention=%s,"
                        + " logRetentionBytes=%d]",
                ttl, versioned, heartbeat, logRetention, logRetentionBytes);
    }

    void encode(ByteBuffer buffer, int at) {
        buffer.putLong(at, Write.ttlMicros(ttl));
        buffer.putInt(at + 8, (int) Math.min(Integer.MAX_VALUE, ReadOptions.millis(heartbeat)));
        buffer.putInt(at + 12, versioned ? 1 : 0);
        buffer.putLong(
                at + 16,
                Write.micros(logRetention, "the log retention is below 0; give 0 or more"));
        if (logRetentionBytes < 0) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT, "the bound of bytes is below 0; give 0 or more");
        }
        buffer.putLong(at + 24, logRetentionBytes);
    }
}
