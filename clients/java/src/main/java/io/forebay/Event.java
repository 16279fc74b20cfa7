/* An event of a select. */
package io.forebay;

import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * A retained event of a stream, in the result of an {@link EventQuery}.
 *
 * @param key the key
 * @param time the event time
 * @param appendTime the time at which the log appended the event
 * @param partition the partition
 * @param offset the offset of the event's entry in the partition
 * @param indexInEntry the event's index in the entry, from 0
 * @param columns the selected columns that the event has, by their current names, including null
 *     columns
 */
public record Event(
        Key key,
        Instant time,
        Instant appendTime,
        int partition,
        long offset,
        int indexInEntry,
        Document columns) {

    /** Unpacks an event; the names are the columns' names, by their ids. */
    static Event unpack(Unpacker packed, Map<Integer, String> names) {
        Key key = packed.key();
        Instant time = Values.instant(packed.i64());
        Instant appendTime = Values.instant(packed.i64());
        int partition = packed.i32();
        long offset = packed.i64();
        int indexInEntry = packed.i32();
        int count = packed.i32();
        Map<String, Values.EncodedValue> columns = new LinkedHashMap<>();
        for (int number = 0; number < count; number++) {
            String name = names.get(packed.i32());
            columns.put(name, packed.value());
        }
        Document values = Document.ofColumns(columns);
        return new Event(key, time, appendTime, partition, offset, indexInEntry, values);
    }
}
