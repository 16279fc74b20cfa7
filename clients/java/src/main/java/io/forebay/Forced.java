/* Simulated states of an in-memory reader. */
package io.forebay;

import java.time.Duration;

/**
 * The state that {@link InMemoryReader#force} simulates, until the next call.
 *
 * @param state the state
 * @param age the age of a stale reader; zero for the other states
 */
public record Forced(State state, Duration age) {
    /** The kinds of states. */
    public enum State {
        /** No simulated state: ready, and as fresh as the reader's clock. */
        NOTHING,
        /** Not caught up: reads and waits throw {@link UnavailableException}. */
        NOT_READY,
        /** Stale by an age: reads with a lower bound throw {@link StaleException}. */
        STALE,
        /** Closed permanently. */
        CLOSED
    }

    /**
     * Returns the absence of a simulated state: ready, and as fresh as the reader's clock.
     *
     * @return the state
     */
    public static Forced nothing() {
        return new Forced(State.NOTHING, Duration.ZERO);
    }

    /**
     * Returns the state of a reader that has not caught up. Writes in this state become visible
     * when another state is set.
     *
     * @return the state
     */
    public static Forced notReady() {
        return new Forced(State.NOT_READY, Duration.ZERO);
    }

    /**
     * Returns the state of a stale reader, whose data ages further with the reader's clock.
     *
     * @param age the age of the data
     * @return the state
     */
    public static Forced stale(Duration age) {
        return new Forced(State.STALE, age);
    }

    /**
     * Returns the state of a closed reader.
     *
     * @return the state
     */
    public static Forced closed() {
        return new Forced(State.CLOSED, Duration.ZERO);
    }
}
