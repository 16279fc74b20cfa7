/* Options of a write stream. */
package io.forebay;

import java.time.Duration;

/**
 * Limits of the unresolved changes of a {@link WriteStream}, and the deadline of its calls.
 * Immutable.
 */
public final class StreamOptions {
    private static final int BYTES = HeaderConstants.STREAM_OPTIONS_STRUCT_BYTES;

    /** The default limits, and the client's deadline. */
    public static final StreamOptions DEFAULT = builder().build();

    private final int changesMax;
    private final long bytesMax;
    private final Duration deadline;

    private StreamOptions(Builder builder) {
        changesMax = builder.changesMax;
        bytesMax = builder.bytesMax;
        deadline = builder.deadline;
    }

    /**
     * Returns a builder of options, which begins with the defaults.
     *
     * @return the builder
     */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds options. Belongs to one thread. */
    public static final class Builder {
        private int changesMax;
        private long bytesMax;
        private Duration deadline = Duration.ZERO;

        private Builder() {}

        /**
         * Limits the changes whose futures are not completed; a further change waits.
         *
         * @param changes most changes; 16,384 unless set, and for 0
         * @return this builder
         */
        public Builder changesMax(int changes) {
            changesMax = changes;
            return this;
        }

        /**
         * Limits the bytes of unresolved changes; a larger change is sent alone.
         *
         * @param bytes most bytes; 64 MiB unless set, and for 0
         * @return this builder
         */
        public Builder bytesMax(long bytes) {
            bytesMax = bytes;
            return this;
        }

        /**
         * Sets the deadline of each call of the stream.
         *
         * @param time the deadline, in whole milliseconds; the client's unless set, and for zero
         * @return this builder
         */
        public Builder deadline(Duration time) {
            deadline = time;
            return this;
        }

        /**
         * Returns the options; the builder can be used further.
         *
         * @return the options
         */
        public StreamOptions build() {
            return new StreamOptions(this);
        }
    }

    Duration deadline() {
        return deadline;
    }

    /** Writes an fb_stream_options; returns its address. */
    long encode(CallBuffer call) {
        if (changesMax < 0 || bytesMax < 0) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT, "a bound of the stream is below 0; give 0 or more");
        }
        CallBuffer.Place place = call.allocate(BYTES);
        place.buffer().putLong(place.at(), changesMax);
        place.buffer().putLong(place.at() + 8, bytesMax);
        place.buffer().putLong(place.at() + 16, ReadOptions.millis(deadline));
        return place.address();
    }
}
