/* Behaviours of streams; see proto/vectors/behaviours.toml. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.Optional;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;

class EventBehavioursTest extends Behaviours {
    private static final Key U = Key.of("u");
    private static final StoreOptions RETAINING =
            StoreOptions.builder()
                    .logRetention(Duration.ofHours(1))
                    .logRetentionBytes(1L << 40)
                    .build();

    /**
     * Creates a stream of orders: a time, a required city, one of two devices, a class of one to
     * three.
     */
    private static Store orders() {
        FieldSpec city = FieldSpec.of("city", FieldType.STRING).required(true);
        FieldSpec device = FieldSpec.of("device", FieldType.STRING).fallback("phone");
        StoreSpec spec =
                StoreSpec.stream(Node.name(), KeyType.STRING)
                        .partitions(3)
                        .field("at", FieldType.TIMESTAMP)
                        .field(city.index(ColumnIndex.EXACT))
                        .field(device.allowed(List.of("phone", "desktop")))
                        .field(FieldSpec.of("class", FieldType.INT32).allowed(List.of(1, 2L, 3)))
                        .eventTime("at")
                        .options(RETAINING);
        return CLIENT.createStore(spec);
    }

    private static Definition.Field column(Definition definition, String name) {
        return definition.field(name).orElseThrow();
    }

    private static Definition alter(Store store, Alteration alteration) {
        return CLIENT.alterStore(store.name(), 0, List.of(alteration));
    }

    @Test
    void streamIsDescribedAsCreatedAndAltered() {
        Store orders = orders();
        Definition definition = orders.definition();
        assertTrue(definition.isStream());
        assertFalse(definition.isKeyValue());
        assertEquals("at", definition.eventTime());
        assertEquals(RETAINING, definition.options());
        assertTrue(column(definition, "city").isRequired());
        assertEquals(ColumnIndex.EXACT, column(definition, "city").index());
        assertNull(column(definition, "device").index());
        assertEquals("phone", column(definition, "device").fallback());
        assertEquals(List.of("phone", "desktop"), column(definition, "device").allowed());
        assertEquals(List.of(1, 2, 3), column(definition, "class").allowed());
        assertEquals(definition, CLIENT.describeStore(orders.name()));
        assertTrue(CLIENT.listStores().contains(definition));
        StoreOptions other = StoreOptions.builder().logRetentionBytes(1).build();
        alter(orders, Alteration.setOptions(other));
        ColumnIndex range = ColumnIndex.RANGE;
        Definition altered = alter(orders, Alteration.setRules("class", true, List.of(4L), range));
        assertEquals(other, altered.options());
        assertEquals(range, column(altered, "class").index());
        assertTrue(column(altered, "class").isRequired());
        assertEquals(List.of(4), column(altered, "class").allowed());
        assertEquals(altered, CLIENT.describeStore(orders.name()));
        Alteration text = Alteration.setRules("class", false, List.of("four"), null);
        ForebayException refusal = invalid(() -> alter(orders, text));
        assertEquals(Optional.of("class"), refusal.field());
        StoreSpec noTime = StoreSpec.stream(Node.name(), KeyType.STRING)
                .partitions(3)
                .eventTime("at");
        invalid(() -> CLIENT.createStore(noTime));
        StoreOptions negative = StoreOptions.builder().logRetentionBytes(-1).build();
        invalid(() -> alter(orders, Alteration.setOptions(negative)));
    }

    @Test
    void streamAppendsEveryEventWithItsOwnToken() {
        Store orders = orders();
        Key user = Key.of("user-1");
        WriteOutcome first = orders.insert(user).set("city", "Rome").set("class", 2).send();
        WriteOutcome second = orders.insert(user).set("city", "Rome").set("class", 2).send();
        assertEquals(WriteOutcome.WriteResult.APPENDED, first.result());
        assertEquals(WriteOutcome.WriteResult.APPENDED, second.result());
        assertNotEquals(first.token(), second.token());
        Batch batch = orders.batch();
        for (int number = 0; number < 100; number++) {
            batch.add(orders.insert(Key.of("user-" + number % 7)).set("city", "Rome"));
        }
        batch.send().requireComplete();
        WriteStream.StreamSummary summary;
        try (WriteStream stream = orders.writeStream()) {
            for (int number = 0; number < 100; number++) {
                stream.send(orders.insert(user).set("city", "Rome"));
            }
            summary = stream.flush();
        }
        assertEquals(100, summary.resolved());
        assertEquals(0, summary.failed());
    }

    private static void refusedAt(@Nullable String column, Write write) {
        assertEquals(Optional.ofNullable(column), invalid(write::send).field());
    }

    @Test
    void streamRefusesEventsAgainstItsRules() {
        Store orders = orders();
        refusedAt("city", orders.insert(U));
        refusedAt("city", orders.insert(U).setNull("city"));
        refusedAt("city", orders.insert(U).set("city", 5));
        refusedAt("device", orders.insert(U).set("city", "Rome").set("device", "tv"));
        refusedAt("class", orders.insert(U).set("city", "Rome").set("class", 4));
        refusedAt(null, orders.insert(U).set("city", "Rome").increment("class", 1));
        refusedAt(null, orders.upsert(U).set("city", "Rome"));
        refusedAt(null, orders.put(U).set("city", "Rome"));
        refusedAt(null, orders.delete(U));
        alter(orders, Alteration.setRules("device", false, List.of(), null));
        orders.insert(U).set("city", "Rome").set("device", "tv").send();
        ForebayException refusal = invalid(() -> CLIENT.reader(orders.name()));
        assertEquals(Optional.of(orders.name()), refusal.store());
        try (OpenStore at = open()) {
            refusedAt(null, at.store().insert(U).set("a", 1));
        }
    }
}
