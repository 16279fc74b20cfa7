/* The embedded reader: a live copy of a store in this process. */
package io.forebay;

import java.time.Duration;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.Consumer;

/**
 * A live copy of a store in this process, opened by {@link ForebayClient#reader}. Reads are local:
 * they take no lock and wait for nothing but the disk that a document was spilled to, where the
 * reader may spill ({@link ReaderOptions#spillingAtMost}). Safe to share between threads; close it
 * when it is no longer needed. The position that it serves never falls.
 */
public sealed class ForebayReader extends Reads implements AutoCloseable permits InMemoryReader {
    private final String store;
    private final NativeId id;
    /** Of the callbacks. */
    private final Queue<Long> tickets = new ConcurrentLinkedQueue<>();

    ForebayReader(String store, long id) {
        super(id, Read.local());
        this.store = store;
        this.id = NativeId.explicit(id);
    }

    /**
     * A reader of a store that lies in this process's memory alone, for tests of programs that
     * read: ready at once, with these rows in it. No file, thread, port or server stands behind it.
     *
     * @param spec the store that it reads
     * @param rows the documents that it begins with, from {@link Write#row}
     * @return the reader, which the test writes to, moves and breaks; close it
     * @throws ForebayException for a store that cannot be, and for a row that it does not take
     */
    public static InMemoryReader inMemory(StoreSpec spec, Write... rows) {
        return InMemoryReader.open(spec, List.of(rows));
    }

    /**
     * The store's name.
     *
     * @return the name
     */
    public String store() {
        return store;
    }

    /**
     * Reads of this reader that are made in another way.
     *
     * @param how what they wait for, and how old their answers may be
     * @return the reads; as long-lived as this reader
     */
    public Reads with(Read how) {
        return new Reads(reader, how);
    }

    /**
     * Waits until every partition serves inside its bound.
     *
     * @param timeout the longest wait
     * @throws UnavailableException with phase, percent and remaining time when it takes longer
     */
    public void awaitReady(Duration timeout) {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.readerAwaitReady(reader, Read.millis(timeout), call.error()));
        } finally {
            call.release();
        }
    }

    /**
     * Waits until everything that a token speaks of is applied here.
     *
     * @param token what a write answered
     * @param timeout the longest wait
     * @throws TokenLostException when a log of the token is no longer served
     * @throws DeadlineExceededException when it takes longer
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
                            Read.millis(timeout),
                            call.error()));
        } finally {
            call.release();
        }
    }

    /**
     * Resolves a field, to be read as its own type.
     *
     * @param name its name or an alias
     * @return the field
     * @throws NotFoundException when the store has no such field
     */
    public FieldHandle field(String name) {
        return field(name, new FieldType(0));
    }

    /**
     * Resolves a field, to be read as a type that is the field's own, narrower or wider.
     *
     * @param name its name or an alias
     * @param asked the type
     * @return the field
     * @throws NotFoundException when the store has no such field
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
     * The partition that a key belongs to.
     *
     * @param key a key
     * @return the partition's number
     */
    public int partitionOf(Key key) {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.readerPartition(
                            reader, call.key(key), call.out(0), call.error()));
            return call.outInt(0);
        } finally {
            call.release();
        }
    }

    /**
     * The store's definition at the newest version that this reader has seen.
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
     * The newest schema version that any partition of this reader has seen.
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
     * Calls back with the definition of each schema version that this reader comes to from now on,
     * in their order, until it is closed.
     *
     * @param listener called on a thread of Forebay's, one call at a time; it must not block. What
     *     it throws is logged
     */
    public void onSchemaChange(Consumer<Definition> listener) {
        Inbox inbox = Inbox.get();
        long ticket = inbox.each(event -> listener.accept(Definition.unpack(event)));
        tickets.add(ticket);
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.readerOnSchemaChange(
                            reader, inbox.sink(call, ticket), call.error()));
        } catch (ForebayException refused) {
            inbox.forget(ticket);
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
     * @throws InvalidArgumentException for a field that has no place in such a matrix
     */
    public GatherPlan planFloats(List<GatherField> fields, boolean lossy) {
        return GatherPlan.open(reader, fields, GatherPlan.Cell.FLOAT, lossy);
    }

    /**
     * Plans a gather into a matrix of doubles.
     *
     * @param fields the fields, in the order of their columns
     * @param lossy whether values may be rounded to fit
     * @return the plan
     * @throws InvalidArgumentException for a field that has no place in such a matrix
     */
    public GatherPlan planDoubles(List<GatherField> fields, boolean lossy) {
        return GatherPlan.open(reader, fields, GatherPlan.Cell.DOUBLE, lossy);
    }

    /**
     * Plans a gather into a matrix of longs.
     *
     * @param fields the fields, in the order of their columns
     * @param lossy whether values may be cut to fit
     * @return the plan
     * @throws InvalidArgumentException for a field that has no place in such a matrix
     */
    public GatherPlan planLongs(List<GatherField> fields, boolean lossy) {
        return GatherPlan.open(reader, fields, GatherPlan.Cell.LONG, lossy);
    }

    /**
     * How the reader and each of its partitions are at this moment.
     *
     * @return the status
     */
    public ReaderStatus status() {
        return metrics().status();
    }

    /**
     * Counts and sizes since the reader was opened.
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
     * Compares the copy of a partition that this reader answers from with the shard of the node
     * that it is connected to, at one position, and names the documents that are not the same.
     * Reads both whole, the shard over the network; the partition applies nothing while its own
     * copy is read, and answers on.
     *
     * @param partition the partition
     * @param timeout the longest wait for the shard, and then until the reader has come as far
     * @return what came of it
     * @throws InvalidArgumentException for a partition that is not followed
     * @throws UnsupportedException for a reader in memory, and where another reader of the
     *     directory keeps the copy
     */
    public Verified verify(int partition, Duration timeout) {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.readerVerify(
                            reader, partition, Read.millis(timeout), call.out(0), call.error()));
            return Verified.unpack(partition, new Unpacker(call.takeBytes(0)));
        } finally {
            call.release();
        }
    }

    /**
     * Ends the reader: reads in flight end, later ones throw {@link ClosedException}, and its
     * memory goes after the last of them. One that keeps checkpoints writes a last one of each
     * partition and waits for them, up to 10 s; one that takes longer leaves the one before. A
     * second close changes nothing.
     */
    @Override
    public void close() {
        id.close();
        for (Long ticket = tickets.poll(); ticket != null; ticket = tickets.poll()) {
            Inbox.get().forget(ticket);
        }
    }
}
