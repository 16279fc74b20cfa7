/* What a stream of writes is asked to be. */
package io.forebay;

import java.time.Duration;

/**
 * How much a {@link WriteStream} holds at a time, and how long its calls wait.
 *
 * @param changesMax most changes whose outcome is not told yet; a further one waits; 0 for 16,384
 * @param bytesMax most bytes of changes that are not settled; a larger one goes alone; 0 for 64 MiB
 * @param deadline time that each call of the stream has, in whole milliseconds; zero for the
 *     client's
 */
public record StreamOptions(int changesMax, long bytesMax, Duration deadline) {
    private static final int BYTES = 24;

    /**
     * The options of a stream of which nobody says more.
     *
     * @return the options
     */
    public static StreamOptions standard() {
        return new StreamOptions(0, 0, Duration.ZERO);
    }

    /**
     * The same, with this many changes at most.
     *
     * @param changes most changes whose outcome is not told yet
     * @return the options
     */
    public StreamOptions holding(int changes) {
        return new StreamOptions(changes, bytesMax, deadline);
    }

    /**
     * The same, with this time for each call.
     *
     * @param time the time, in whole milliseconds
     * @return the options
     */
    public StreamOptions within(Duration time) {
        return new StreamOptions(changesMax, bytesMax, time);
    }

    /** Writes an fb_stream_options; answers its address. */
    long encode(CallBuffer call) {
        if (changesMax < 0 || bytesMax < 0) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT, "a stream's bounds are not below 0");
        }
        CallBuffer.Place place = call.allocate(BYTES);
        place.buffer().putLong(place.at(), changesMax);
        place.buffer().putLong(place.at() + 8, bytesMax);
        place.buffer().putLong(place.at() + 16, Read.millis(deadline));
        return place.address();
    }
}
