/* The result of a select. */
package io.forebay;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The events of an {@link EventQuery}.
 *
 * @param columns the selected columns, as the newest definition has them
 * @param events the events, in the requested order
 * @param token the positions that were read; a later select after this token reads no older state
 */
public record EventQueryResult(List<EventColumn> columns, List<Event> events, Token token) {
    /**
     * A column of a select.
     *
     * @param id the permanent id
     * @param name the current name
     * @param type the type
     */
    public record EventColumn(int id, String name, FieldType type) {}

    static EventQueryResult unpack(Unpacker packed) {
        Token token = new Token(packed.bytes());
        int count = packed.i32();
        List<EventColumn> columns = new ArrayList<>(count);
        Map<Integer, String> names = new HashMap<>();
        for (int place = 0; place < count; place++) {
            EventColumn column =
                    new EventColumn(packed.i32(), packed.text(), new FieldType(packed.i32()));
            columns.add(column);
            names.put(column.id(), column.name());
        }
        count = packed.i32();
        List<Event> events = new ArrayList<>(count);
        for (int place = 0; place < count; place++) {
            events.add(Event.unpack(packed, names));
        }
        return new EventQueryResult(List.copyOf(columns), List.copyOf(events), token);
    }
}
