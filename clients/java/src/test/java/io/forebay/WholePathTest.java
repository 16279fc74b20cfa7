/* The thin whole path: create, upsert, follow, read, close. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import org.junit.jupiter.api.Test;

class WholePathTest {
    @Test
    void writesAreReadInProcess() {
        String name = Node.name("users");
        try (ForebayClient client = Node.client()) {
            Store users =
                    client.createStore(
                            StoreSpec.documents(name, KeyType.STRING, 4)
                                    .field("age", FieldType.INT64)
                                    .field("city", FieldType.STRING));
            WriteOutcome written =
                    users.upsert(Key.of("u1")).set("age", 41).set("city", "Zürich").send();
            assertEquals(WriteOutcome.Result.APPENDED, written.result());
            ForebayReader reader = client.reader(name);
            try (reader) {
                reader.awaitReady(Node.PATIENCE);
                reader.awaitToken(written.token(), Duration.ofSeconds(30));
                FieldHandle age = reader.field("age");
                assertEquals(FieldType.INT64, age.type());
                assertEquals(41, reader.getLong(age, Key.of("u1"), -1));
                assertEquals(-1, reader.getLong(age, Key.of("u2"), -1));
                assertEquals("Zürich", reader.getString(reader.field("city"), Key.of("u1")));
                assertNull(reader.getDocument(Key.of("u2")));
                assertEquals(41, reader.getDocument(Key.of("u1")).getLong("age", 0));
            }
            reader.close();
            assertThrows(ClosedException.class, () -> reader.field("age"));
        }
    }
}
