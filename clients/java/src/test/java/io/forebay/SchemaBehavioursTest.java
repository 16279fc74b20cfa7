/* Behaviours of alterations as reads see them; see proto/vectors/behaviours.toml. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.Test;

class SchemaBehavioursTest extends Behaviours {
    private static final Key K = Key.of("k");

    private static void alter(OpenStore at, Alteration... alterations) {
        Definition altered = CLIENT.alterStore(at.name(), 0, List.of(alterations));
        // Every partition sees the new version in its log, even if no client writes.
        Node.eventually(
                "every partition has the new version",
                () ->
                        at.reader().status().partitions().stream()
                                .allMatch(one -> one.schemaVersion() >= altered.version()));
    }

    @Test
    void fieldAddedUnderAnOpenReaderIsReadable() {
        try (OpenStore at = open()) {
            List<Integer> told = new CopyOnWriteArrayList<>();
            at.store().put(K).set("a", 1).send();
            at.latest().getDocument(K);
            int before = at.reader().schemaVersion();
            at.reader().onSchemaChange(definition -> told.add(definition.version()));
            alter(at, Alteration.addField(FieldSpec.of("new", FieldType.INT64)));
            Node.eventually("the callback is told", () -> told.equals(List.of(before + 1)));
            assertEquals(before + 1, at.reader().schemaVersion());
            FieldHandle added = at.reader().field("new");
            assertEquals(Presence.ABSENT, at.latest().presence(added, K));
            Reads reads = at.after(at.store().upsert(K).set("new", 7).send());
            assertEquals(7, reads.getLong(added, K, -1));
        }
    }

    @Test
    void droppedFieldIsAbsentInEveryDocument() {
        try (OpenStore at = open()) {
            FieldHandle before = at.reader().field("a");
            assertEquals(1, at.after(at.store().put(K).set("a", 1).send()).getLong(before, K, -1));
            alter(at, Alteration.dropField("a"));
            assertEquals(Presence.ABSENT, at.reader().presence(before, K));
            alter(at, Alteration.addField(FieldSpec.of("a", FieldType.INT64)));
            FieldHandle again = at.reader().field("a");
            assertEquals(Presence.ABSENT, at.reader().presence(again, K));
            Reads reads = at.after(at.store().upsert(K).set("a", 2).send());
            assertEquals(2, reads.getLong(again, K, -1));
            assertEquals(Presence.ABSENT, reads.presence(before, K));
        }
    }

    @Test
    void dropByPrefixDropsOnlyMatchingFields() {
        try (OpenStore at =
                open(
                        KeyType.STRING,
                        2,
                        spec ->
                                spec.field("old_a", FieldType.INT64)
                                        .field("old_b", FieldType.INT64)
                                        .field("new_old_", FieldType.INT64))) {
            Write write = at.store().put(K).set("old_a", 1).set("old_b", 2).set("new_old_", 3);
            at.after(write.send()).getDocument(K);
            alter(at, Alteration.dropFieldsByPrefix("old_"));
            assertEquals(Set.of("new_old_"), at.reader().getDocument(K).fields());
        }
    }

    @Test
    void dropAllMakesEveryDocumentAbsent() {
        try (OpenStore at = open()) {
            at.after(at.store().put(K).set("a", 1).send()).getDocument(K);
            alter(at, Alteration.dropAll());
            assertNull(at.reader().getDocument(K));
            Reads reads = at.after(at.store().put(K).set("b", 2).send());
            assertEquals(Set.of("b"), reads.getDocument(K).fields());
        }
    }

    @Test
    void handleSurvivesARenameOfItsField() {
        try (OpenStore at = open()) {
            FieldHandle before = at.reader().field("a");
            at.after(at.store().put(K).set("a", 1).send()).getDocument(K);
            alter(at, Alteration.renameField("a", "years"));
            assertEquals(1, at.reader().getLong(before, K, -1));
            assertEquals(1, at.reader().getLong(at.reader().field("years"), K, -1));
            assertEquals(1, at.reader().getLong(at.reader().field("a"), K, -1));
            assertEquals(Set.of("years"), at.reader().getDocument(K).fields());
            Reads reads = at.after(at.store().upsert(K).set("a", 2).send());
            assertEquals(2, reads.getLong(before, K, -1));
        }
    }

    @Test
    void handleSurvivesAWideningOfItsField() {
        try (OpenStore at = open(KeyType.STRING, 2, spec -> spec.field("n", FieldType.INT32))) {
            FieldHandle narrow = at.reader().field("n");
            at.after(at.store().put(K).set("n", 5).send()).getDocument(K);
            alter(at, Alteration.widenField("n", FieldType.INT64));
            assertEquals(5, at.reader().getInt(narrow, K, -1));
            FieldHandle wide = at.reader().field("n");
            assertEquals(FieldType.INT64, wide.type());
            assertEquals(5, at.reader().getLong(wide, K, -1));
            long large = 1L << 40;
            Reads reads = at.after(at.store().put(Key.of("l")).set("n", large).send());
            assertEquals(large, reads.getLong(wide, Key.of("l"), -1));
            String message = invalid(() -> reads.getInt(narrow, Key.of("l"), -1)).getMessage();
            assertTrue(message.contains("int32") && message.contains("int64"), message);
        }
    }
}
