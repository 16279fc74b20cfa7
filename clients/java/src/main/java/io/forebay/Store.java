/* A store of a client: the start of every write, and of selects of its events. */
package io.forebay;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/**
 * A store of a client. The object is bound to the store, not to its name: once the store is
 * deleted, calls throw {@link NotFoundException}, also if another store has taken the name. Safe to
 * share.
 */
public final class Store {
    private static final int OUTCOME_BYTES = HeaderConstants.OUTCOME_STRUCT_BYTES;

    private final String name;
    private final NativeId id;

    Store(String name, long id) {
        this.name = name;
        this.id = NativeId.ownedBy(this, id);
    }

    /**
     * Returns the store's name.
     *
     * @return the name that it was opened by
     */
    public String name() {
        return name;
    }

    /**
     * Changes the named fields and keeps the others; creates the document if it does not exist.
     * Upsert is the default verb: an older program that upserts keeps fields that it does not know.
     *
     * @param key the document's key
     * @return a write to be sent
     */
    public Write upsert(Key key) {
        return new Write(this, HeaderConstants.VERB_UPSERT, key);
    }

    /**
     * Replaces the whole document by the named fields.
     *
     * @param key the document's key
     * @return a write to be sent
     */
    public Write put(Key key) {
        return new Write(this, HeaderConstants.VERB_PUT, key);
    }

    /**
     * Deletes the document.
     *
     * @param key the document's key
     * @return a write to be sent
     */
    public Write delete(Key key) {
        return new Write(this, HeaderConstants.VERB_DELETE, key);
    }

    /**
     * Adds an event to a stream; columns that are not named take their defaults. Events never
     * change. Any number of events may have the same key. A retry of one write adds the event once.
     *
     * @param key the event's key
     * @return a write to be sent
     */
    public Write insert(Key key) {
        return new Write(this, HeaderConstants.VERB_INSERT, key);
    }

    /**
     * Puts the value of a key in a key-value store.
     *
     * @param key the key
     * @param value its value
     * @return a write to be sent
     */
    public Write putValue(Key key, byte[] value) {
        return put(key).set("value", value);
    }

    /**
     * Creates a batch of changes, which are sent together.
     *
     * @return an empty batch
     */
    public Batch batch() {
        return new Batch(this);
    }

    /**
     * Opens a write stream, with a bounded number of changes in flight.
     *
     * @return an empty stream; close it
     */
    public WriteStream writeStream() {
        return writeStream(StreamOptions.DEFAULT);
    }

    /**
     * Opens a write stream, with a bounded number of changes in flight.
     *
     * @param options the limits of unresolved changes, and the deadline of the calls
     * @return an empty stream; close it
     */
    public WriteStream writeStream(StreamOptions options) {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.streamOpen(
                            id.id(), options.encode(call), call.out(0), call.error()));
            return new WriteStream(this, call.outLong(0), options.deadline());
        } finally {
            Reference.reachabilityFence(this);
            call.release();
        }
    }

    /**
     * Creates a select of the retained events of this stream, to be narrowed before it is sent.
     *
     * @return a query of all events
     */
    public EventQuery select() {
        return new EventQuery(this);
    }

    /**
     * Returns the store's definition as this client has last seen it.
     *
     * @return the definition
     */
    public Definition definition() {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(Native.CALLS.storeDefinition(id.id(), call.out(0), call.error()));
            return Definition.unpack(new Unpacker(call.takeBytes(0)));
        } finally {
            Reference.reachabilityFence(this);
            call.release();
        }
    }

    /**
     * Fetches the newest definition from the writer; {@link #definition()} returns it from then on.
     *
     * @return the newest definition
     * @throws NotFoundException if the store was deleted, also if another store has taken its name
     * @throws UnavailableException if the writer does not answer
     */
    public Definition refresh() {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(Native.CALLS.storeRefresh(id.id(), call.out(0), call.error()));
            return Definition.unpack(new Unpacker(call.takeBytes(0)));
        } finally {
            Reference.reachabilityFence(this);
            call.release();
        }
    }

    BatchOutcome send(List<Write> writes, Duration deadline) {
        BatchCall batchCall =
                (call, outcomes) -> {
                    long changes = encode(call, writes);
                    return Native.CALLS.storeWrite(
                            id.id(),
                            changes,
                            writes.size(),
                            ReadOptions.millis(deadline),
                            outcomes,
                            call.out(0),
                            call.error());
                };
        try {
            return outcomeOf(writes.size(), deadline, batchCall);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Writes changes as fb_changes; returns their address. */
    static long encode(CallBuffer call, List<Write> writes) {
        CallBuffer.Place changes = call.allocate((long) Write.CHANGE_BYTES * writes.size());
        int at = changes.at();
        for (Write write : writes) {
            write.encode(call, changes.buffer(), at);
            at += Write.CHANGE_BYTES;
        }
        return changes.address();
    }

    <T> CompletableFuture<T> sendAsync(
            List<Write> writes, Duration deadline, Function<BatchOutcome, T> answer) {
        WriteFuture<T> writeFuture = new WriteFuture<>(writes.size(), deadline, answer);
        CompletionQueue queue = CompletionQueue.get();
        long ticket = queue.once(writeFuture);
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.storeSend(
                            id.id(),
                            encode(call, writes),
                            writes.size(),
                            ReadOptions.millis(deadline),
                            queue.sink(call, ticket),
                            call.error()));
            return writeFuture.future();
        } catch (ForebayException refused) {
            queue.forget(ticket);
            return CompletableFuture.failedFuture(refused);
        } finally {
            Reference.reachabilityFence(this);
            call.release();
        }
    }

    void requireOwn(Write write) {
        if (write.store() != this) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT,
                    "the write is of another store; make another batch or stream for that store");
        }
    }

    /** Returns the store's id; the caller fences this store until its call is done. */
    long id() {
        return id.id();
    }

    /** Closes the store; a second close changes nothing. */
    void close() {
        id.close();
    }

    /** A call that returns outcomes, and its token as results 0 and 1. */
    interface BatchCall {
        int run(CallBuffer call, long outcomes);
    }

    static BatchOutcome outcomeOf(int count, Duration deadline, BatchCall batchCall) {
        CallBuffer call = CallBuffer.take();
        try {
            CallBuffer.Place outcomes = call.allocate((long) OUTCOME_BYTES * count);
            call.check(batchCall.run(call, outcomes.address()));
            Token token = new Token(call.takeBytes(0));
            List<BatchOutcome.ChangeOutcome> results = new ArrayList<>(count);
            for (int place = 0; place < count; place++) {
                long address = outcomes.address() + (long) OUTCOME_BYTES * place;
                int at = outcomes.at() + OUTCOME_BYTES * place;
                results.add(changeOutcome(call, outcomes.buffer(), at, address));
            }
            return new BatchOutcome(token, List.copyOf(results));
        } catch (UnknownOutcomeException unknown) {
            unknown.told(count, deadline);
            throw unknown;
        } finally {
            call.release();
        }
    }

    private static BatchOutcome.ChangeOutcome changeOutcome(
            CallBuffer call, ByteBuffer buffer, int at, long address) {
        int result = buffer.getInt(at);
        OptionalLong version =
                buffer.getInt(at + 4) == 0
                        ? OptionalLong.empty()
                        : OptionalLong.of(buffer.getLong(at + 8));
        ForebayException error =
                result == 0
                        ? ForebayException.of(call.failure(buffer, at + 16, address + 16))
                        : null;
        return BatchOutcome.ChangeOutcome.of(result, version, error);
    }
}
