/* A write, built field by field and then sent. */
package io.forebay;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/**
 * A write that is not sent yet; {@link #send} or {@link Batch#add} sends it. A value is converted
 * to the field's declared type if the conversion is exact; any other value is refused when the
 * write is sent, with nothing written. Belongs to one thread.
 */
public final class Write {
    static final int CHANGE_BYTES = HeaderConstants.CHANGE_STRUCT_BYTES;
    private static final int OP_BYTES = HeaderConstants.OP_STRUCT_BYTES;

    private record Op(int op, String field, Values.EncodedValue value, int bound) {}

    /** The store; null for a row, which belongs to no store yet. */
    private final @Nullable Store store;
    private final int verb;
    private final Key key;
    private final List<Op> ops = new ArrayList<>();
    private final Map<String, Duration> fieldTtls = new LinkedHashMap<>();
    private int condition;
    private long ifVersion;
    private String ifNewer = "";
    private @Nullable Duration ttl;
    private Duration deadline = Duration.ZERO;

    Write(@Nullable Store store, int verb, Key key) {
        this.store = store;
        this.verb = verb;
        this.key = key;
    }

    /**
     * Creates an initial document of an in-memory reader; see {@link ForebayReader#inMemory}. A row
     * is not sent by itself.
     *
     * @param key the document's key
     * @return a row without fields
     */
    public static Write row(Key key) {
        return new Write(null, HeaderConstants.VERB_PUT, key);
    }

    private Write op(int op, String field, @Nullable Object value, int bound) {
        ops.add(new Op(op, field, Values.of(value), bound));
        return this;
    }

    /**
     * Sets an integer.
     *
     * @param field the field's name
     * @param value its value
     * @return this write
     */
    public Write set(String field, long value) {
        return op(HeaderConstants.OP_SET, field, value, 0);
    }

    /**
     * Sets a float.
     *
     * @param field the field's name
     * @param value its value
     * @return this write
     */
    public Write set(String field, double value) {
        return op(HeaderConstants.OP_SET, field, value, 0);
    }

    /**
     * Sets a float of 32 bits.
     *
     * @param field the field's name
     * @param value its value
     * @return this write
     */
    public Write set(String field, float value) {
        return op(HeaderConstants.OP_SET, field, value, 0);
    }

    /**
     * Sets a bool.
     *
     * @param field the field's name
     * @param value its value
     * @return this write
     */
    public Write set(String field, boolean value) {
        return op(HeaderConstants.OP_SET, field, value, 0);
    }

    /**
     * Sets a value: a String, byte[], Instant, List of one type, float[] (a vector), or a boxed
     * number.
     *
     * @param field the field's name
     * @param value its value
     * @return this write
     * @throws InvalidArgumentException for an object that no field holds
     */
    public Write set(String field, Object value) {
        return op(HeaderConstants.OP_SET, field, value, 0);
    }

    /**
     * Sets a vector of 8-bit integers.
     *
     * @param field the field's name
     * @param vector its components
     * @return this write
     */
    public Write setI8(String field, byte[] vector) {
        ops.add(new Op(HeaderConstants.OP_SET, field, Values.ofI8(vector), 0));
        return this;
    }

    /**
     * Sets a field to null, which is not the same as absent.
     *
     * @param field the field's name
     * @return this write
     */
    public Write setNull(String field) {
        return op(HeaderConstants.OP_SET, field, null, 0);
    }

    /**
     * Makes a field absent.
     *
     * @param field the field's name
     * @return this write
     */
    public Write removeField(String field) {
        return op(HeaderConstants.OP_REMOVE, field, null, 0);
    }

    /**
     * Adds to an integer. Absent and null count as 0, and integers saturate at their bounds.
     *
     * @param field the field's name
     * @param by the increment
     * @return this write
     */
    public Write increment(String field, long by) {
        return op(HeaderConstants.OP_INCREMENT, field, by, 0);
    }

    /**
     * Adds to a float; absent and null count as 0.
     *
     * @param field the field's name
     * @param by the increment
     * @return this write
     */
    public Write increment(String field, double by) {
        return op(HeaderConstants.OP_INCREMENT, field, by, 0);
    }

    /**
     * Keeps the smaller of the field's value and this one.
     *
     * @param field the field's name
     * @param value a Long, Integer, Float, Double or Instant
     * @return this write
     */
    public Write min(String field, Object value) {
        return op(HeaderConstants.OP_MIN, field, value, 0);
    }

    /**
     * Keeps the larger of the field's value and this one.
     *
     * @param field the field's name
     * @param value a Long, Integer, Float, Double or Instant
     * @return this write
     */
    public Write max(String field, Object value) {
        return op(HeaderConstants.OP_MAX, field, value, 0);
    }

    /**
     * Appends components to a list.
     *
     * @param field the field's name
     * @param items the components
     * @param bound the number of last components that stay
     * @return this write
     */
    public Write listAppend(String field, List<?> items, int bound) {
        return op(HeaderConstants.OP_LIST_APPEND, field, items, bound);
    }

    /**
     * Adds the components that a list does not contain yet.
     *
     * @param field the field's name
     * @param items the components
     * @param bound the number of last components that stay
     * @return this write
     */
    public Write setAdd(String field, List<?> items, int bound) {
        return op(HeaderConstants.OP_SET_ADD, field, items, bound);
    }

    /**
     * Removes components from a list.
     *
     * @param field the field's name
     * @param items the components
     * @return this write
     */
    public Write setRemove(String field, List<?> items) {
        return op(HeaderConstants.OP_SET_REMOVE, field, items, 0);
    }

    /**
     * Sets the time to live of a field that this write changes.
     *
     * @param field the field's name
     * @param ttl the time to live, in whole microseconds
     * @return this write
     */
    public Write fieldTtl(String field, Duration ttl) {
        fieldTtls.put(field, ttl);
        return this;
    }

    /**
     * Sets the document's time to live, counted from this write.
     *
     * @param ttl the time to live, in whole microseconds
     * @return this write
     */
    public Write ttl(Duration ttl) {
        this.ttl = ttl;
        return this;
    }

    /**
     * Applies the write only if there is no document under the key.
     *
     * @return this write
     */
    public Write ifAbsent() {
        return condition(HeaderConstants.IF_ABSENT);
    }

    /**
     * Applies the write only if the document has exactly this version; the store must be versioned.
     *
     * @param version the version
     * @return this write
     */
    public Write ifVersion(long version) {
        ifVersion = version;
        return condition(HeaderConstants.IF_VERSION);
    }

    /**
     * Applies the write only if the value that it sets the field to is greater than the field's
     * current value.
     *
     * @param field the field's name
     * @return this write
     */
    public Write ifNewer(String field) {
        ifNewer = field;
        return condition(HeaderConstants.IF_NEWER);
    }

    private Write condition(int wanted) {
        if (condition != HeaderConstants.IF_ALWAYS) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT, "the change has two conditions; set one");
        }
        condition = wanted;
        return this;
    }

    /**
     * Sets the deadline of this write, retries included; the client's deadline unless set.
     *
     * @param deadline the deadline
     * @return this write
     */
    public Write deadline(Duration deadline) {
        this.deadline = deadline;
        return this;
    }

    /**
     * Sends the write, and retries until its outcome is known.
     *
     * @return the outcome
     * @throws UnknownOutcomeException at the deadline, with the write, to retry it
     * @throws ForebayException for an invalid write, with nothing written
     */
    public WriteOutcome send() {
        return ownStore().send(List.of(this), deadline).single();
    }

    /**
     * Sends the write without waiting. Two writes that are sent like this may overtake each other;
     * to preserve their order, wait for the first, or use a {@link WriteStream}.
     *
     * @return a future that completes with the outcome, or with the exception that {@link #send}
     *     would throw; with {@link LimitExceededException} if 16,384 changes of the client are in
     *     flight. The future completes on a thread of Forebay's: its dependents there must not
     *     block
     */
    public CompletableFuture<WriteOutcome> sendAsync() {
        return ownStore().sendAsync(List.of(this), deadline, BatchOutcome::single);
    }

    @Nullable Store store() {
        return store;
    }

    private Store ownStore() {
        if (store == null) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT,
                    "the write is a row of ForebayReader.inMemory; make a write of a store");
        }
        return store;
    }

    /** Writes this as an fb_change into zeroed memory. */
    void encode(CallBuffer call, ByteBuffer buffer, int at) {
        for (String field : fieldTtls.keySet()) {
            if (ops.stream().noneMatch(op -> op.field().equals(field))) {
                throw ForebayException.of(
                        ErrorCode.INVALID_ARGUMENT,
                        "the write sets a time to live on a field that it does not change; change"
                                + " the field, too");
            }
        }
        buffer.putInt(at, verb);
        buffer.putInt(at + 4, condition);
        call.key(buffer, at + 8, key);
        CallBuffer.Place place = call.allocate((long) OP_BYTES * ops.size());
        buffer.putLong(at + 48, place.address());
        buffer.putLong(at + 56, ops.size());
        buffer.putLong(at + 64, ttlMicros(ttl));
        buffer.putLong(at + 72, ifVersion);
        call.text(buffer, at + 80, ifNewer);
        int opAt = place.at();
        for (Op op : ops) {
            place.buffer().putInt(opAt, op.op());
            place.buffer().putInt(opAt + 4, op.bound());
            call.text(place.buffer(), opAt + 8, op.field());
            place.buffer().putInt(opAt + 24, op.value().type());
            call.text(place.buffer(), opAt + 32, op.value().bytes());
            place.buffer().putLong(opAt + 48, ttlMicros(fieldTtls.get(op.field())));
            opAt += OP_BYTES;
        }
    }

    static long ttlMicros(@Nullable Duration ttl) {
        return micros(ttl, "the time to live is below 0; give 0 or more");
    }

    /**
     * Returns the microseconds of a time, or -1 for null; refuses a time below 0 with a message.
     */
    static long micros(@Nullable Duration time, String refusal) {
        if (time == null) {
            return -1;
        }
        if (time.isNegative()) {
            throw ForebayException.of(ErrorCode.INVALID_ARGUMENT, refusal);
        }
        return Values.micros(Instant.EPOCH.plus(time));
    }
}
