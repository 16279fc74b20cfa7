/* A select of a stream's retained events, built part by part and then sent. */
package io.forebay;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A select: which events of a stream, and which columns; {@link #send} sends it to the node.
 *
 * <p>A select finds the events of one key, of one value of an indexed column, or between two values
 * of an indexed column; if none of these is set, the events in a span of time, or all events. The
 * result is ordered by event time, unless a column is set for the order. Belongs to one thread.
 *
 * <pre>{@code
 * Store orders = client.store("orders");
 * WriteOutcome written =
 *         orders.insert(Key.of("u1")).set("city", "Rome").set("price", 12).send();
 * EventQueryResult dear =
 *         orders.select()
 *                 .equal("city", "Rome")
 *                 .start(Instant.now().minus(Duration.ofHours(1)))
 *                 .columns("price")
 *                 .orderBy("price")
 *                 .descending()
 *                 .limit(100)
 *                 .read(ReadOptions.after(written.token(), Duration.ofSeconds(5)))
 *                 .send();
 * for (Event event : dear.events()) {
 *     System.out.println(event.time() + " " + event.columns().getLong("price", 0));
 * }
 * }</pre>
 */
public final class EventQuery {
    private static final int TEXT_BYTES = HeaderConstants.TEXT_STRUCT_BYTES;

    private final Store store;
    private int flags;
    private int limit;
    private @Nullable Key key;
    private String column = "";
    private Values.EncodedValue startValue = Values.EncodedValue.NULL;
    private Values.EncodedValue endValue = Values.EncodedValue.NULL;
    private long startMicros;
    private long endMicros;
    private List<String> columns = List.of();
    private String orderBy = "";
    private ReadOptions read = ReadOptions.local();

    EventQuery(Store store) {
        this.store = store;
    }

    /**
     * Selects the events of this key.
     *
     * @param key the key
     * @return this query
     */
    public EventQuery key(Key key) {
        this.key = key;
        flags |= HeaderConstants.SELECT_KEY;
        return this;
    }

    /**
     * Selects the events with this value in an indexed column.
     *
     * @param column the column's name
     * @param value the value, of the column's type or exactly convertible to it
     * @return this query
     * @throws InvalidArgumentException for an object that no column holds
     */
    public EventQuery equal(String column, Object value) {
        this.column = column;
        startValue = Values.of(value);
        flags |= HeaderConstants.SELECT_EQUAL;
        return this;
    }

    /**
     * Selects the events whose value in a column with a range index is in a half-open range.
     *
     * @param column the column's name
     * @param start the least value, or null for no bound
     * @param end the end of the range, exclusive, or null for no bound
     * @return this query
     * @throws InvalidArgumentException for an object that no column holds
     */
    public EventQuery between(String column, @Nullable Object start, @Nullable Object end) {
        this.column = column;
        startValue = Values.of(start);
        endValue = Values.of(end);
        flags |= HeaderConstants.SELECT_BETWEEN;
        return this;
    }

    /**
     * Selects the events at this event time or later.
     *
     * @param time the time, to the microsecond
     * @return this query
     */
    public EventQuery start(Instant time) {
        startMicros = Values.micros(time);
        flags |= HeaderConstants.SELECT_START;
        return this;
    }

    /**
     * Selects the events before this event time.
     *
     * @param time the time, to the microsecond
     * @return this query
     */
    public EventQuery end(Instant time) {
        endMicros = Values.micros(time);
        flags |= HeaderConstants.SELECT_END;
        return this;
    }

    /**
     * Returns only these columns of each event.
     *
     * @param names the columns' names; none for all
     * @return this query
     */
    public EventQuery columns(String... names) {
        columns = List.of(names);
        return this;
    }

    /**
     * Orders the events by the values of this scalar column; events without a value come last.
     *
     * @param column the column's name
     * @return this query
     */
    public EventQuery orderBy(String column) {
        orderBy = column;
        flags |= HeaderConstants.SELECT_ORDER_BY;
        return this;
    }

    /**
     * Reverses the order: the last events first.
     *
     * @return this query
     */
    public EventQuery descending() {
        flags |= HeaderConstants.SELECT_DESCENDING;
        return this;
    }

    /**
     * Limits the result to the first events.
     *
     * @param events the limit, up to 10,000; 1,000 unless set, and for 0
     * @return this query
     * @throws InvalidArgumentException for a number below 0
     */
    public EventQuery limit(int events) {
        if (events < 0) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT, "the limit is below 0; give 0 or more");
        }
        limit = events;
        return this;
    }

    /**
     * Sets the wait before the select starts, and the staleness bound; the node's own state unless
     * set.
     *
     * @param read the read
     * @return this query
     */
    public EventQuery read(ReadOptions read) {
        this.read = read;
        return this;
    }

    /**
     * Sends the select; retries until the client's deadline while no node answers.
     *
     * @return the events
     * @throws InvalidArgumentException for a store of documents, a key or a value of another type,
     *     a column without the index that the select needs, and a select with two criteria
     * @throws NotFoundException for a column that the stream does not have, and for a deleted
     *     stream
     * @throws LimitExceededException if the result has too many events or bytes, or the node would
     *     have to look at too many events
     * @throws TokenLostException for a token of a log that is gone
     * @throws StaleException if the node's data is older than the read allows
     * @throws DeadlineExceededException if the wait of the read does not end in time
     * @throws UnavailableException if no node answers in time
     */
    public EventQueryResult send() {
        CallBuffer call = CallBuffer.take();
        try {
            long select = encode(call);
            call.check(
                    Native.CALLS.storeSelect(
                            store.id(), select, call.read(read), call.out(0), call.error()));
            return EventQueryResult.unpack(new Unpacker(call.takeBytes(0)));
        } finally {
            Reference.reachabilityFence(store);
            call.release();
        }
    }

    /** Writes an fb_event_query; returns its address. */
    private long encode(CallBuffer call) {
        CallBuffer.Place place = call.allocate(HeaderConstants.EVENT_QUERY_STRUCT_BYTES);
        ByteBuffer buffer = place.buffer();
        int at = place.at();
        buffer.putInt(at, flags);
        buffer.putInt(at + 4, limit);
        if (key != null) {
            call.key(buffer, at + 8, key);
        }
        call.text(buffer, at + 48, column);
        buffer.putInt(at + 64, startValue.type());
        call.text(buffer, at + 72, startValue.bytes());
        buffer.putInt(at + 88, endValue.type());
        call.text(buffer, at + 96, endValue.bytes());
        buffer.putLong(at + 112, startMicros);
        buffer.putLong(at + 120, endMicros);
        buffer.putLong(at + 128, names(call));
        buffer.putLong(at + 136, columns.size());
        call.text(buffer, at + 144, orderBy);
        return place.address();
    }

    /** Writes the names of columns as fb_texts; returns their address. */
    private long names(CallBuffer call) {
        CallBuffer.Place places = call.allocate((long) TEXT_BYTES * columns.size());
        int at = places.at();
        for (String name : columns) {
            call.text(places.buffer(), at, name);
            at += TEXT_BYTES;
        }
        return places.address();
    }
}
