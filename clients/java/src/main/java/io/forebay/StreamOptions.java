/* Options of a write stream. */
package io.forebay;

import java.time.Duration;

/**
 * Limits of the unsettled changes of a {@link WriteStream}, and the deadline of its calls.
 *
 * @param changesMax most changes whose futures are not completed; a further change waits; 0 for
 *     16,384
 * @param bytesMax most bytes of unsettled changes; a larger change is sent alone; 0 for 64 MiB
 * @param deadline deadline of each call of the stream, in whole milliseconds; zero for the client's
 */
public record StreamOptions(int changesMax, long bytesMax, Duration deadline) {
    private static final int BYTES = HeaderConstants.STREAM_OPTIONS_STRUCT_BYTES;

    /** The default limits, and the client's deadline. */
    public static final StreamOptions DEFAULT = new StreamOptions(0, 0, Duration.ZERO);

    /**
     * Returns the same options with another limit of changes.
     *
     * @param changes most changes whose futures are not completed
     * @return the options
     */
    public StreamOptions changesMax(int changes) {
        return new StreamOptions(changes, bytesMax, deadline);
    }

    /**
     * Returns the same options with another limit of bytes.
     *
     * @param bytes most bytes of unsettled changes
     * @return the options
     */
    public StreamOptions bytesMax(long bytes) {
        return new StreamOptions(changesMax, bytes, deadline);
    }

    /**
     * Returns the same options with another deadline for each call.
     *
     * @param time the deadline, in whole milliseconds
     * @return the options
     */
    public StreamOptions deadline(Duration time) {
        return new StreamOptions(changesMax, bytesMax, time);
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
