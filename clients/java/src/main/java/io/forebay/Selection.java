/* A select of a stream's retained events, said part by part and then sent. */
package io.forebay;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Which events of a stream are selected, and what of them; {@link #send} asks the node for them.
 *
 * <p>They are those of one key, of one value of an indexed column, or between two; without any of
 * these those that happened in a span of time, or all. They come ordered by when they happened,
 * unless by a column. Belongs to one thread.
 *
 * <pre>{@code
 * Store orders = client.store("orders");
 * WriteOutcome written =
 *         orders.insert(Key.of("u1")).set("city", "Rome").set("price", 12).send();
 * Selected dear =
 *         orders.select()
 *                 .equal("city", "Rome")
 *                 .from(Instant.now().minus(Duration.ofHours(1)))
 *                 .columns("price")
 *                 .orderBy("price")
 *                 .descending()
 *                 .limit(100)
 *                 .read(Read.after(written.token(), Duration.ofSeconds(5)))
 *                 .send();
 * for (SelectedEvent event : dear.events()) {
 *     System.out.println(event.time() + " " + event.columns().getLong("price", 0));
 * }
 * }</pre>
 */
public final class Selection {
    /** Bytes of an fb_select and an fb_text. */
    private static final int SELECT_BYTES = 160;

    private static final int TEXT_BYTES = 16;

    private static final int KEY = 1;
    private static final int EQUAL = 2;
    private static final int BETWEEN = 4;
    private static final int FROM = 8;
    private static final int TO = 16;
    private static final int ORDER_BY = 32;
    private static final int DESCENDING = 64;

    private final Store store;
    private int asks;
    private int limit;
    private @Nullable Key key;
    private String column = "";
    private Values.Encoded least = Values.Encoded.NULL;
    private Values.Encoded behind = Values.Encoded.NULL;
    private long fromMicros;
    private long toMicros;
    private List<String> columns = List.of();
    private String orderBy = "";
    private Read read = Read.local();

    Selection(Store store) {
        this.store = store;
    }

    /**
     * Events of this key.
     *
     * @param key the key
     * @return this selection
     */
    public Selection key(Key key) {
        this.key = key;
        asks |= KEY;
        return this;
    }

    /**
     * Events with this value in a column that has an index.
     *
     * @param column the column's name
     * @param value the value, of the column's type or one that this holds exactly
     * @return this selection
     * @throws InvalidArgumentException for an object that no column holds
     */
    public Selection equal(String column, Object value) {
        this.column = column;
        least = Values.of(value);
        asks |= EQUAL;
        return this;
    }

    /**
     * Events whose value in a column with an index of ranges lies from one on, up to another one
     * that is left out.
     *
     * @param column the column's name
     * @param from the least value, or null for no bound
     * @param to the first value behind, or null for no bound
     * @return this selection
     * @throws InvalidArgumentException for an object that no column holds
     */
    public Selection between(String column, @Nullable Object from, @Nullable Object to) {
        this.column = column;
        least = Values.of(from);
        behind = Values.of(to);
        asks |= BETWEEN;
        return this;
    }

    /**
     * Events that happened at this time or later.
     *
     * @param time the time, to the microsecond
     * @return this selection
     */
    public Selection from(Instant time) {
        fromMicros = Values.micros(time);
        asks |= FROM;
        return this;
    }

    /**
     * Events that happened before this time.
     *
     * @param time the time, to the microsecond
     * @return this selection
     */
    public Selection to(Instant time) {
        toMicros = Values.micros(time);
        asks |= TO;
        return this;
    }

    /**
     * Only these columns of each event.
     *
     * @param names the columns' names; none for all
     * @return this selection
     */
    public Selection columns(String... names) {
        columns = List.of(names);
        return this;
    }

    /**
     * In the order of this scalar column's values, those of events without one last.
     *
     * @param column the column's name
     * @return this selection
     */
    public Selection orderBy(String column) {
        orderBy = column;
        asks |= ORDER_BY;
        return this;
    }

    /**
     * The last ones first.
     *
     * @return this selection
     */
    public Selection descending() {
        asks |= DESCENDING;
        return this;
    }

    /**
     * The first of them, at most so many.
     *
     * @param events how many, up to 10,000; 1,000 unless set, and for 0
     * @return this selection
     * @throws InvalidArgumentException for a number below 0
     */
    public Selection limit(int events) {
        if (events < 0) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT, "give a limit that is not below 0");
        }
        limit = events;
        return this;
    }

    /**
     * What is waited for before it begins, and how old it may be; the node's own state unless set.
     *
     * @param read the read
     * @return this selection
     */
    public Selection read(Read read) {
        this.read = read;
        return this;
    }

    /**
     * Sends the select; again, until the client's deadline, where nobody answers.
     *
     * @return the events
     * @throws InvalidArgumentException for a store of documents, a key or a value of another type,
     *     a column without the index that it takes, and events that are to be found in two ways
     * @throws NotFoundException for a column that the stream does not have, and for a stream that
     *     was deleted
     * @throws LimitExceededException for more events or bytes than are answered, or more than are
     *     looked at to find them
     * @throws TokenLostException for a token of what is in the log no more
     * @throws StaleException when what the node has is older than the read allows
     * @throws DeadlineExceededException when what the read waits for is not there in time
     * @throws UnavailableException when nobody answers in time
     */
    public Selected send() {
        CallBuffer call = CallBuffer.take();
        try {
            long select = encode(call);
            call.check(
                    Native.CALLS.storeSelect(
                            store.id(), select, call.read(read), call.out(0), call.error()));
            return Selected.unpack(new Unpacker(call.takeBytes(0)));
        } finally {
            Reference.reachabilityFence(store);
            call.release();
        }
    }

    /** Writes an fb_select; answers its address. */
    private long encode(CallBuffer call) {
        CallBuffer.Place place = call.allocate(SELECT_BYTES);
        ByteBuffer buffer = place.buffer();
        int at = place.at();
        buffer.putInt(at, asks);
        buffer.putInt(at + 4, limit);
        if (key != null) {
            call.key(buffer, at + 8, key);
        }
        call.text(buffer, at + 48, column);
        buffer.putInt(at + 64, least.type());
        call.text(buffer, at + 72, least.bytes());
        buffer.putInt(at + 88, behind.type());
        call.text(buffer, at + 96, behind.bytes());
        buffer.putLong(at + 112, fromMicros);
        buffer.putLong(at + 120, toMicros);
        buffer.putLong(at + 128, names(call));
        buffer.putLong(at + 136, columns.size());
        call.text(buffer, at + 144, orderBy);
        return place.address();
    }

    /** Writes the names of columns as fb_texts; answers their address. */
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
