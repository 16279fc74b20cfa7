/* In-memory readers, for tests of programs that read. */
package io.forebay;

import java.time.Duration;
import java.time.Instant;
import java.util.List;

/**
 * A reader over a store in this process's memory, from {@link ForebayReader#inMemory}. The program
 * under test takes it as a reader; its own methods are the test's controls.
 *
 * <p>Everything below the writes is production code: the index, merges, conditions, times to live
 * and alterations. A write is visible when its call returns. The clock starts at the host's time
 * and then stands still until the test moves it. Safe to share between threads.
 *
 * <pre>{@code
 * StoreSpec spec =
 *         StoreSpec.documents("users", KeyType.STRING)
 *                 .partitions(4)
 *                 .field("visits", FieldType.INT64);
 * Write ada = Write.row(Key.of("ada")).set("visits", 2);
 * try (InMemoryReader users = ForebayReader.inMemory(spec, ada)) {
 *     assertEquals(2, new Ranking(users).visits("ada"));
 *     users.upsert(Key.of("ada")).increment("visits", 1).send();
 *     assertEquals(3, new Ranking(users).visits("ada"));
 *     users.simulate(SimulatedState.stale(Duration.ofHours(1)));
 *     assertThrows(StaleException.class, () -> new Ranking(users).visits("ada"));
 * }
 * }</pre>
 */
public final class InMemoryReader extends ForebayReader {
    private final Store written;

    private InMemoryReader(String name, long id, Store written) {
        super(name, id);
        this.written = written;
    }

    static InMemoryReader open(StoreSpec spec, List<Write> rows) {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.testReaderOpen(
                            spec.encode(call),
                            Store.encode(call, rows),
                            rows.size(),
                            call.out(0),
                            call.out(1),
                            call.error()));
            Store written = new Store(spec.name(), call.outLong(1));
            return new InMemoryReader(spec.name(), call.outLong(0), written);
        } finally {
            call.release();
        }
    }

    /**
     * Returns the store behind this reader, for programs that write. Writes and batches are visible
     * when they return. The store has no write streams.
     *
     * @return the store
     */
    public Store asStore() {
        return written;
    }

    /**
     * Creates an upsert; see {@link Store#upsert}.
     *
     * @param key the document's key
     * @return a write to be sent
     */
    public Write upsert(Key key) {
        return written.upsert(key);
    }

    /**
     * Creates a put; see {@link Store#put}.
     *
     * @param key the document's key
     * @return a write to be sent
     */
    public Write put(Key key) {
        return written.put(key);
    }

    /**
     * Creates a delete; see {@link Store#delete}.
     *
     * @param key the document's key
     * @return a write to be sent
     */
    public Write delete(Key key) {
        return written.delete(key);
    }

    /**
     * Alters the store, which gives the store its next version. All alterations happen, or none.
     *
     * @param alterations the alterations
     * @return the new definition
     * @throws InvalidArgumentException if old data would become unreadable, with the reason
     */
    public Definition alter(List<Alteration> alterations) {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.testReaderAlter(
                            reader,
                            Alteration.encode(call, alterations),
                            alterations.size(),
                            call.out(0),
                            call.error()));
            return Definition.unpack(new Unpacker(call.takeBytes(0)));
        } finally {
            call.release();
        }
    }

    /**
     * Returns the time of the reader's clock, to the microsecond.
     *
     * @return the time
     */
    public Instant clock() {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(Native.CALLS.testReaderClock(reader, call.out(0), call.error()));
            return Values.instant(call.outLong(0));
        } finally {
            call.release();
        }
    }

    /**
     * Sets the reader's clock. Documents that expire by then are absent.
     *
     * @param now the time, in whole microseconds
     * @throws InvalidArgumentException for a time before the clock's current time
     */
    public void setClock(Instant now) {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.testReaderSetClock(reader, Values.micros(now), call.error()));
        } finally {
            call.release();
        }
    }

    /**
     * Moves the reader's clock forward.
     *
     * @param by the distance, in whole microseconds
     */
    public void advance(Duration by) {
        setClock(clock().plus(by));
    }

    /**
     * Simulates a state, until the next call.
     *
     * @param state the state; an age counts in whole milliseconds
     */
    public void simulate(SimulatedState state) {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.testReaderSimulate(
                            reader,
                            state.kind().ordinal(),
                            ReadOptions.millis(state.age()),
                            call.error()));
        } finally {
            call.release();
        }
    }

    /** Ends the reader and its store; see {@link ForebayReader#close}. */
    @Override
    public void close() {
        super.close();
        written.close();
    }
}
