/* One event that a select has found. */
package io.forebay;

import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * A retained event of a stream, as a {@link Selection} answers it.
 *
 * @param key its key
 * @param time when it happened
 * @param appendTime when the log took it
 * @param partition its partition
 * @param offset the offset of its entry there
 * @param place its place in the entry, from 0
 * @param columns its selected columns that are there, by their current names, null ones too
 */
public record SelectedEvent(
        Key key,
        Instant time,
        Instant appendTime,
        int partition,
        long offset,
        int place,
        Document columns) {

    /** The names are those of the columns, by their ids. */
    static SelectedEvent unpack(Unpacker packed, Map<Integer, String> names) {
        Key key = packed.key();
        Instant time = Values.instant(packed.i64());
        Instant appendTime = Values.instant(packed.i64());
        int partition = packed.i32();
        long offset = packed.i64();
        int place = packed.i32();
        int count = packed.i32();
        Map<String, Values.Encoded> columns = new LinkedHashMap<>();
        for (int number = 0; number < count; number++) {
            String name = names.get(packed.i32());
            columns.put(name, packed.value());
        }
        Document values = Document.ofColumns(columns);
        return new SelectedEvent(key, time, appendTime, partition, offset, place, values);
    }
}
