/*
 * Freshness: the time from the acknowledgement of a write until the write is visible in this
 * process.
 */
package io.forebay.demo;

import com.google.gson.JsonObject;
import io.forebay.FieldHandle;
import io.forebay.FieldType;
import io.forebay.ForebayReader;
import io.forebay.Key;
import io.forebay.Store;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeoutException;

/** Writes probes and polls until each is visible. */
final class Probe {
    /** Keys of one language's probes; together they cover all partitions. */
    private static final long KEYS = 16;

    /** Pause between two probes, so that they add little to the load. */
    private static final long REST_MILLIS = 2;

    /** Time after which a write that is still not visible is a failure. */
    private static final long VISIBLE_NANOS = 30_000_000_000L;

    private static final long SAY_NANOS = 500_000_000L;

    private final Store store;
    private final ForebayReader reader;
    private final FieldHandle value;
    private final long firstKey;
    private final Times times = new Times();
    private long written;

    Probe(Store store, ForebayReader reader, long number) {
        this.store = store;
        this.reader = reader;
        this.value = reader.field("value", FieldType.INT64);
        this.firstKey = number * KEYS;
    }

    /** Probes until a message arrives; prints the figures from time to time. */
    JsonObject untilHeard(Future<JsonObject> heard)
            throws InterruptedException, ExecutionException, TimeoutException {
        long said = System.nanoTime();
        while (!heard.isDone()) {
            probe();
            if (System.nanoTime() - said >= SAY_NANOS) {
                said = System.nanoTime();
                DemoReader.say("freshness", figures());
            }
            Thread.sleep(REST_MILLIS);
        }
        return heard.get();
    }

    private void probe() throws TimeoutException {
        written++;
        Key key = Key.of(firstKey + written % KEYS);
        store.upsert(key).set("value", written).send();
        long acknowledged = System.nanoTime();
        while (reader.getLong(value, key, 0) != written) {
            if (System.nanoTime() - acknowledged > VISIBLE_NANOS) {
                throw new TimeoutException(
                        "an acknowledged write did not become visible in time");
            }
            Thread.yield();
        }
        times.record(System.nanoTime() - acknowledged);
    }

    /** Returns the freshness of the reader so far. */
    JsonObject figures() {
        JsonObject figures = new JsonObject();
        figures.addProperty("samples", times.count());
        return times.micros(figures);
    }
}
