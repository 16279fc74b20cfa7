/* A store as a client holds it: the start of every write. */
package io.forebay;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalLong;

/**
 * One store of a client. Bound to the store, not to its name: once the store is deleted it answers
 * {@link NotFoundException}, also when another store has taken the name. Safe to share.
 */
public final class Store {
    private static final int OUTCOME_BYTES = 112;
    private static final int UPSERT = 1;
    private static final int PUT = 2;
    private static final int DELETE = 3;

    private final String name;
    private final NativeId id;

    Store(String name, long id) {
        this.name = name;
        this.id = NativeId.ownedBy(this, id);
    }

    /**
     * The store's name.
     *
     * @return the name that it was opened by
     */
    public String name() {
        return name;
    }

    /**
     * Changes the fields that are named and keeps the others; makes the document if there is none.
     * The default verb: an older program that upserts keeps fields that it does not know.
     *
     * @param key the document's key
     * @return a write to be sent
     */
    public Write upsert(Key key) {
        return new Write(this, UPSERT, key);
    }

    /**
     * Replaces the whole document by the fields that are named.
     *
     * @param key the document's key
     * @return a write to be sent
     */
    public Write put(Key key) {
        return new Write(this, PUT, key);
    }

    /**
     * Deletes the document.
     *
     * @param key the document's key
     * @return a write to be sent
     */
    public Write delete(Key key) {
        return new Write(this, DELETE, key);
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
     * A batch of changes, sent together.
     *
     * @return an empty batch
     */
    public Batch batch() {
        return new Batch(this);
    }

    /**
     * The store's definition as this client has last seen it.
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

    BatchOutcome send(List<Write> writes, Duration deadline) {
        Settling sending =
                (call, outcomes) -> {
                    int size = writes.size();
                    CallBuffer.Place changes = call.allocate((long) Write.CHANGE_BYTES * size);
                    int at = changes.at();
                    for (Write write : writes) {
                        write.encode(call, changes.buffer(), at);
                        at += Write.CHANGE_BYTES;
                    }
                    return Native.CALLS.storeWrite(
                            id.id(),
                            changes.address(),
                            size,
                            Read.millis(deadline),
                            outcomes,
                            call.out(0),
                            call.error());
                };
        try {
            return settled(writes.size(), deadline, sending);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** A call that answers outcomes, and its token as results 0 and 1. */
    interface Settling {
        int run(CallBuffer call, long outcomes);
    }

    static BatchOutcome settled(int count, Duration deadline, Settling settling) {
        CallBuffer call = CallBuffer.take();
        try {
            CallBuffer.Place outcomes = call.allocate((long) OUTCOME_BYTES * count);
            call.check(settling.run(call, outcomes.address()));
            Token token = new Token(call.takeBytes(0));
            List<BatchOutcome.Change> changes = new ArrayList<>(count);
            for (int place = 0; place < count; place++) {
                long address = outcomes.address() + (long) OUTCOME_BYTES * place;
                int at = outcomes.at() + OUTCOME_BYTES * place;
                changes.add(change(call, outcomes.buffer(), at, address));
            }
            return new BatchOutcome(token, List.copyOf(changes));
        } catch (UnknownOutcomeException unknown) {
            unknown.told(count, deadline);
            throw unknown;
        } finally {
            call.release();
        }
    }

    private static BatchOutcome.Change change(
            CallBuffer call, ByteBuffer buffer, int at, long address) {
        int result = buffer.getInt(at);
        if (result == 0) {
            ForebayException.Failure failure = call.failure(buffer, at + 16, address + 16);
            return new BatchOutcome.Change(
                    null, OptionalLong.empty(), ForebayException.of(failure));
        }
        OptionalLong version =
                buffer.getInt(at + 4) == 0
                        ? OptionalLong.empty()
                        : OptionalLong.of(buffer.getLong(at + 8));
        return new BatchOutcome.Change(WriteOutcome.Result.values()[result - 1], version, null);
    }
}
