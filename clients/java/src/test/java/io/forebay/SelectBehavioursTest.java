/* Behaviours of selects of a stream's retained events; see proto/vectors/behaviours.toml. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Instant;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.stream.LongStream;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;

class SelectBehavioursTest extends Behaviours {
    /** Orders of three users, and the token of their insert. */
    private record Orders(Store store, Token token) {
        EventQuery select() {
            return store.select().read(ReadOptions.after(token, PATIENCE));
        }
    }

    /**
     * Writes twelve orders, one a second: the even ones in Rome with a null note, the others in
     * Oslo.
     */
    private static Orders orders() {
        FieldSpec price = FieldSpec.of("price", FieldType.INT64);
        StoreSpec spec =
                StoreSpec.stream(Node.name(), KeyType.STRING)
                        .partitions(3)
                        .field("at", FieldType.TIMESTAMP)
                        .field(FieldSpec.of("city", FieldType.STRING).index(ColumnIndex.EXACT))
                        .field(FieldSpec.of("class", FieldType.INT32).index(ColumnIndex.EXACT))
                        .field(price.index(ColumnIndex.RANGE))
                        .field("note", FieldType.STRING)
                        .field("tags", FieldType.list(FieldType.STRING))
                        .eventTime("at");
        Store store = CLIENT.createStore(spec);
        Batch batch = store.batch();
        for (int n = 0; n < 12; n++) {
            Write event = store.insert(Key.of("user-" + n % 3)).set("at", second(n));
            event.set("class", n % 4).set("city", n % 2 == 0 ? "Rome" : "Oslo");
            if (n % 2 == 0) {
                event.setNull("note");
            }
            if (n < 11) {
                event.set("price", price(n));
            }
            batch.add(event);
        }
        return new Orders(store, batch.send().requireComplete().token());
    }

    /**
     * Returns the price of an order: 0, 10 to 110, in a different order; the last order has none.
     */
    private static long price(long n) {
        return n * 7 % 12 * 10;
    }

    private static Instant second(long n) {
        return Instant.ofEpochSecond(n);
    }

    private static void found(EventQuery query, long... seconds) {
        List<Event> events = query.send().events();
        List<Long> found = events.stream().map(event -> event.time().getEpochSecond()).toList();
        assertEquals(LongStream.of(seconds).boxed().toList(), found);
    }

    @Test
    void selectByKeyReturnsTheEventsOfTheKey() {
        Orders orders = orders();
        Key user = Key.of("user-1");
        EventQueryResult selected = orders.select().key(user).send();
        List<String> names =
                selected.columns().stream().map(EventQueryResult.EventColumn::name).toList();
        assertEquals(List.of("at", "city", "class", "price", "note", "tags"), names);
        assertEquals(FieldType.INT32, selected.columns().get(2).type());
        Event first = selected.events().get(0);
        Event second = selected.events().get(1);
        long[] seconds = {1, 4, 7, 10};
        assertEquals(seconds.length, selected.events().size());
        for (int place = 0; place < seconds.length; place++) {
            Event event = selected.events().get(place);
            assertEquals(user, event.key());
            assertEquals(second(seconds[place]), event.time());
            assertTrue(event.appendTime().isAfter(event.time()));
            assertEquals(first.partition(), event.partition());
            assertEquals(event.time(), event.columns().value("at"));
            assertEquals((int) seconds[place] % 4, event.columns().value("class"));
            assertEquals(price(seconds[place]), event.columns().getLong("price", -1));
        }
        assertNotEquals(
                List.of(first.offset(), first.indexInEntry()),
                List.of(second.offset(), second.indexInEntry()));
        assertEquals("Oslo", first.columns().getString("city"));
        assertEquals(Presence.ABSENT, first.columns().presence("note"));
        assertEquals(Presence.NULL, second.columns().presence("note"));
        assertNull(second.columns().value("note"));
        found(orders.select().key(Key.of("nobody")));
    }

    @Test
    void selectByValueReturnsEventsWithTheValue() {
        Orders orders = orders();
        found(orders.select().equal("class", 2), 2, 6, 10);
        found(orders.select().equal("class", 2L), 2, 6, 10);
        found(orders.select().equal("city", "Bern"));
        EventQueryResult rome = orders.select().equal("city", "Rome").columns("price").send();
        assertEquals(List.of("price"), rome.columns().stream().map(it -> it.name()).toList());
        assertEquals(6, rome.events().size());
        assertEquals(20, rome.events().get(1).columns().getLong("price", -1));
        assertEquals(Set.of("price"), rome.events().get(1).columns().fields());
    }

    @Test
    void selectByRangeReturnsEventsBetweenTwoValues() {
        Orders orders = orders();
        found(orders.select().between("price", 20, 70), 2, 4, 6, 9);
        found(orders.select().between("price", null, 20), 0, 7);
        found(orders.select().between("price", 100L, null), 5, 10);
        EventQuery all = orders.select().between("price", null, null);
        found(all, LongStream.range(0, 11).toArray());
        found(orders.select().between("price", 41, 60));
    }

    @Test
    void orderedSelectReturnsTheFirstEvents() {
        Orders orders = orders();
        found(orders.select().orderBy("price"), 0, 7, 2, 9, 4, 6, 1, 8, 3, 10, 5, 11);
        EventQuery falling = orders.select().orderBy("price").descending();
        found(falling, 5, 10, 3, 8, 1, 6, 4, 9, 2, 7, 0, 11);
        found(falling.limit(3), 5, 10, 3);
        EventQuery ofOne = orders.select().key(Key.of("user-1")).orderBy("price").columns("city");
        found(ofOne, 7, 4, 1, 10);
        assertEquals(Set.of("city"), ofOne.send().events().get(0).columns().fields());
    }

    @Test
    void selectByTimeReturnsTheEventsOfTheSpan() {
        Orders orders = orders();
        EventQuery span = orders.select().start(second(3)).end(second(6));
        found(span, 3, 4, 5);
        found(span.descending(), 5, 4, 3);
        found(orders.select().start(second(10)), 10, 11);
        found(orders.select().end(second(2)), 0, 1);
        found(orders.select().key(Key.of("user-1")).start(second(4)).end(second(10)), 4, 7);
        found(orders.select().descending().limit(2), 11, 10);
        found(orders.select(), LongStream.range(0, 12).toArray());
    }

    private static <E extends ForebayException> void refusedAt(
            Class<E> type, @Nullable String column, Store store, EventQuery query) {
        E refusal = refused(type, query::send);
        assertEquals(Optional.of(store.name()), refusal.store());
        assertEquals(Optional.ofNullable(column), refusal.field());
    }

    @Test
    void invalidSelectsAreRefused() {
        Store orders = orders().store();
        for (EventQuery unknown :
                List.of(
                        orders.select().columns("price", "colour"),
                        orders.select().equal("colour", "red"),
                        orders.select().between("colour", 1, 2),
                        orders.select().orderBy("colour"))) {
            refusedAt(NotFoundException.class, "colour", orders, unknown);
        }
        Class<InvalidArgumentException> invalid = InvalidArgumentException.class;
        refusedAt(invalid, "note", orders, orders.select().equal("note", "fast"));
        refusedAt(invalid, "note", orders, orders.select().between("note", "a", "b"));
        refusedAt(invalid, "city", orders, orders.select().between("city", "A", "B"));
        refusedAt(invalid, "city", orders, orders.select().equal("city", 5));
        refusedAt(invalid, "class", orders, orders.select().equal("class", Long.MAX_VALUE));
        refusedAt(invalid, "tags", orders, orders.select().orderBy("tags"));
        refusedAt(invalid, null, orders, orders.select().key(Key.of(7)));
        Key partitioned = Key.of("a").withPartitionKey(Key.of("b"));
        refusedAt(invalid, null, orders, orders.select().key(partitioned));
        EventQuery two = orders.select().key(Key.of("user-1")).equal("city", "Rome");
        refusedAt(invalid, null, orders, two);
        invalid(() -> orders.select().limit(-1));
        limited(10_000, 10_001, () -> orders.select().limit(10_001).send());
        try (OpenStore at = open()) {
            refusedAt(invalid, null, at.store(), at.store().select());
        }
    }

    private static Token inserted(Store orders) {
        return orders.insert(Key.of("own")).set("at", second(0)).send().token();
    }

    @Test
    void selectAfterATokenFindsItsEvent() {
        Store orders = orders().store();
        for (int written = 1; written < 4; written++) {
            EventQuery own = orders.select().key(Key.of("own"));
            EventQueryResult mine = own.read(ReadOptions.after(inserted(orders), PATIENCE)).send();
            assertEquals(written, mine.events().size());
            EventQueryResult again = own.read(ReadOptions.after(mine.token(), PATIENCE)).send();
            assertEquals(written, again.events().size());
        }
        inserted(orders);
        EventQuery latest = orders.select().key(Key.of("own")).read(ReadOptions.latest(PATIENCE));
        assertEquals(4, latest.send().events().size());
    }
}
