/* The embedded reader: a full copy of a store in this process. */
package io.forebay;

import java.time.Duration;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.Consumer;

/**
 * A full copy of a store in this process, opened by {@link ForebayClient#reader}. Reads are local:
 * they take no lock and wait for nothing except the disk, for a spilled document ({@link
 * ReaderOptions.Builder#spillLimit}). Safe to share between threads; close the reader when it is no
 * longer needed. The position that a reader serves never falls.
 */
public sealed class ForebayReader extends Reads implements AutoCloseable permits InMemoryReader {
    private final String store;
    private final NativeId id;
    /** Tickets of the callbacks. */
    private final Queue<Long> tickets = new ConcurrentLinkedQueue<>();

    ForebayReader(String store, long id) {
        super(id, ReadOptions.local());
        this.store = store;
        this.id = NativeId.explicit(id);
    }

    /**
     * Opens a reader of a store in this process's memory, for tests of programs that read. The
     * reader is ready at once and contains these rows. No file, thread, port or server is involved.
     *
     * @param spec the specification of the store
     * @param rows the initial documents, from {@link Write#row}
     * @return the reader, with the test's controls; close it
     * @throws ForebayException for an invalid store or row
     */
    public static InMemoryReader inMemory(StoreSpec spec, Write... rows) {
        return InMemoryReader.open(spec, List.of(rows));
    }

    /**
     * Returns the store's name.
     *
     * @return the name
     */
    public String store() {
        return store;
    }

    /**
     * Returns reads of this reader with another wait or staleness bound.
     *
     * @param options the wait and the staleness bound of the reads
     * @return the reads; they live as long as this reader
     */
    public Reads with(ReadOptions options) {
        return new Reads(reader, options);
    }

    /**
     * Waits until every partition serves within its bound.
     *
     * @param timeout the longest wait
     * @throws UnavailableException with phase, percent and remaining time, if the wait takes longer
     */
    public void awaitReady(Duration timeout) {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.readerAwaitReady(
                            reader, ReadOptions.millis(timeout), call.error()));
        } finally {
            call.release();
        }
    }

    /**
     * Waits until everything that a token covers is applied in this process.
     *
     * @param token the token of a write
     * @param timeout the longest wait
     * @throws TokenLostException if a log of the token is no longer served
     * @throws DeadlineExceededException if the wait takes longer
     */
    public void awaitToken(Token token, Duration timeout) {
        CallBuffer call = CallBuffer.take();
        try {
            byte[] bytes = token.bytes();
            call.check(
                    Native.CALLS.readerAwaitToken(
                            reader,
                            call.put(bytes),
                            bytes.length,
                            ReadOptions.millis(timeout),
                            call.error()));
        } finally {
            call.release();
        }
    }

    /**
     * Resolves a field, to be read as its own type.
     *
     * @param name the field's name or an alias
     * @return the field
     * @throws NotFoundException if the store has no such field
     */
    public FieldHandle field(String name) {
        return field(name, new FieldType(0));
    }

    /**
     * Resolves a field, to be read as its own type, or as a narrower or wider type.
     *
     * @param name the field's name or an alias
     * @param asked the type
     * @return the field
     * @throws NotFoundException if the store has no such field
     * @throws InvalidArgumentException for a type that the field cannot be read as
     */
    public FieldHandle field(String name, FieldType asked) {
        CallBuffer call = CallBuffer.take();
        try {
            byte[] text = Text.utf8(name);
            call.check(
                    Native.CALLS.readerField(
                            reader,
                            call.put(text),
                            text.length,
                            asked.code(),
                            call.out(0),
                            call.out(1),
                            call.error()));
            return new FieldHandle(name, new FieldType(call.outInt(1)), call.outLong(0));
        } finally {
            call.release();
        }
    }

    /**
     * Returns the partition that a key belongs to.
     *
     * @param key a key
     * @return the partition's number
     */
    public int partitionOf(Key key) {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.readerPartitionOf(
                            reader, call.key(key), call.out(0), call.error()));
            return call.outInt(0);
        } finally {
            call.release();
        }
    }

    /**
     * Returns the store's definition at the newest version that this reader has seen.
     *
     * @return the definition
     */
    public Definition definition() {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(Native.CALLS.readerDefinition(reader, call.out(0), call.error()));
            return Definition.unpack(new Unpacker(call.takeBytes(0)));
        } finally {
            call.release();
        }
    }

    /**
     * Returns the newest schema version that any partition of this reader has seen.
     *
     * @return the version; 0 before the first entry
     */
    public int schemaVersion() {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(Native.CALLS.readerSchemaVersion(reader, call.out(0), call.error()));
            return call.outInt(0);
        } finally {
            call.release();
        }
    }

    /**
     * Calls back with the definition of each schema version that this reader reaches from now on,
     * in order, until the reader is closed.
     *
     * @param listener called on a thread of Forebay's, one call at a time; the listener must not
     *     block. Exceptions of the listener are logged
     */
    public void onSchemaChange(Consumer<Definition> listener) {
        CompletionQueue queue = CompletionQueue.get();
        long ticket = queue.each(event -> listener.accept(Definition.unpack(event)));
        tickets.add(ticket);
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.readerOnSchemaChange(
                            reader, queue.sink(call, ticket), call.error()));
        } catch (ForebayException refused) {
            queue.forget(ticket);
            throw refused;
        } finally {
            call.release();
        }
    }

    /**
     * Plans a gather into a matrix of floats.
     *
     * @param fields the fields, in the order of their columns
     * @param lossy whether values may be rounded to fit
     * @return the plan
     * @throws InvalidArgumentException for a field whose type does not fit such a matrix
     */
    public GatherPlan planGatherFloats(List<GatherField> fields, boolean lossy) {
        return GatherPlan.open(reader, fields, GatherPlan.Cell.FLOAT, lossy);
    }

    /**
     * Plans a gather into a matrix of doubles.
     *
     * @param fields the fields, in the order of their columns
     * @param lossy whether values may be rounded to fit
     * @return the plan
     * @throws InvalidArgumentException for a field whose type does not fit such a matrix
     */
    public GatherPlan planGatherDoubles(List<GatherField> fields, boolean lossy) {
        return GatherPlan.open(reader, fields, GatherPlan.Cell.DOUBLE, lossy);
    }

    /**
     * Plans a gather into a matrix of longs.
     *
     * @param fields the fields, in the order of their columns
     * @param lossy whether values may be truncated to fit
     * @return the plan
     * @throws InvalidArgumentException for a field whose type does not fit such a matrix
     */
    public GatherPlan planGatherLongs(List<GatherField> fields, boolean lossy) {
        return GatherPlan.open(reader, fields, GatherPlan.Cell.LONG, lossy);
    }

    /**
     * Returns whether the process should get traffic. Costs as much as {@link #status}.
     *
     * @return whether every partition serves within its bound
     */
    public boolean isReady() {
        return status().isReady();
    }

    /**
     * Returns the current status of the reader and of each of its partitions.
     *
     * @return the status
     */
    public ReaderStatus status() {
        return metrics().status();
    }

    /**
     * Returns counts and sizes since the reader was opened.
     *
     * @return the metrics
     */
    public ReaderMetrics metrics() {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(Native.CALLS.readerMetrics(reader, call.out(0), call.error()));
            return ReaderMetrics.unpack(new Unpacker(call.takeBytes(0)));
        } finally {
            call.release();
        }
    }

    /**
     * Compares this reader's copy of a partition with the shard of the connected node, at one
     * position, and names the documents that differ. Reads both completely, the shard over the
     * network; while the reader's copy is read, the partition applies no entries but still answers
     * reads.
     *
     * @param partition the partition
     * @param timeout the longest wait for the shard, and then until the reader has reached the same
     *     position
     * @return the result of the comparison
     * @throws InvalidArgumentException for a partition that is not followed
     * @throws UnsupportedException for an in-memory reader, and if another reader of the directory
     *     maintains the copy
     */
    public Verification verify(int partition, Duration timeout) {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.readerVerify(
                            reader,
                            partition,
                            ReadOptions.millis(timeout),
                            call.out(0),
                            call.error()));
            return Verification.unpack(partition, new Unpacker(call.takeBytes(0)));
        } finally {
            call.release();
        }
    }

    /**
     * Closes the reader: reads in flight end, later ones throw {@link ClosedException}, and the
     * memory is freed after the last of them. A reader with checkpoints writes a last checkpoint of
     * each partition and waits for them, up to 10 s; a checkpoint that takes longer leaves the
     * previous one in effect. A second close changes nothing.
     */
    @Override
    public void close() {
        id.close();
        for (Long ticket = tickets.poll(); ticket != null; ticket = tickets.poll()) {
            CompletionQueue.get().forget(ticket);
        }
    }
}
