/* Simulated states of an in-memory reader. */
package io.forebay;

import java.time.Duration;

/**
 * The state that {@link InMemoryReader#simulate} simulates, until the next call.
 *
 * @param kind the kind
 * @param age the age of a stale reader; zero for the other states
 */
public record SimulatedState(Kind kind, Duration age) {
    /** The kinds of states. */
    public enum Kind {
        /** No simulated state: ready, and as fresh as the reader's clock. */
        NONE,
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
    public static SimulatedState none() {
        return new SimulatedState(Kind.NONE, Duration.ZERO);
    }

    /**
     * Returns the state of a reader that has not caught up. Writes in this state become visible
     * when another state is set.
     *
     * @return the state
     */
    public static SimulatedState notReady() {
        return new SimulatedState(Kind.NOT_READY, Duration.ZERO);
    }

    /**
     * Returns the state of a stale reader, whose data ages further with the reader's clock.
     *
     * @param age the age of the data
     * @return the state
     */
    public static SimulatedState stale(Duration age) {
        return new SimulatedState(Kind.STALE, age);
    }

    /**
     * Returns the state of a closed reader.
     *
     * @return the state
     */
    public static SimulatedState closed() {
        return new SimulatedState(Kind.CLOSED, Duration.ZERO);
    }
}
