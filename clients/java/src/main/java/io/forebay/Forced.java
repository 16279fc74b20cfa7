/* A state that a test puts a reader in memory into. */
package io.forebay;

import java.time.Duration;

/**
 * What {@link InMemoryReader#force} puts a reader into, until the next one.
 *
 * @param state which state
 * @param age of a stale reader; zero for the others
 */
public record Forced(State state, Duration age) {
    /** The states. */
    public enum State {
        /** None: ready, and as fresh as its clock. */
        NOTHING,
        /** It has not caught up: reads and waits are {@link UnavailableException}. */
        NOT_READY,
        /** What it serves has an age: reads with a bound below it are {@link StaleException}. */
        STALE,
        /** Closed, for good. */
        CLOSED
    }

    /**
     * No forced state: ready, and as fresh as its clock.
     *
     * @return the state
     */
    public static Forced nothing() {
        return new Forced(State.NOTHING, Duration.ZERO);
    }

    /**
     * Not caught up. What is written meanwhile is there when another state is forced.
     *
     * @return the state
     */
    public static Forced notReady() {
        return new Forced(State.NOT_READY, Duration.ZERO);
    }

    /**
     * Stale. It ages further with the reader's clock.
     *
     * @param age how old what it serves is
     * @return the state
     */
    public static Forced stale(Duration age) {
        return new Forced(State.STALE, age);
    }

    /**
     * Closed.
     *
     * @return the state
     */
    public static Forced closed() {
        return new Forced(State.CLOSED, Duration.ZERO);
    }
}
