/* The dump: every document of a store, by key and by scan, one JSON object per line. */
package io.forebay.demo;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import io.forebay.Document;
import io.forebay.DocumentScan;
import io.forebay.ForebayReader;
import io.forebay.Key;
import io.forebay.ScannedDocument;
import java.io.IOException;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.jspecify.annotations.Nullable;

/** The scan of one store: ratings by key. */
final class Dump {
    private static final Gson GSON = new GsonBuilder().serializeNulls().create();

    private final Map<Long, Long> ratings = new TreeMap<>();

    private Dump() {}

    /** Writes every document of a store. */
    static Dump write(ForebayReader reader, Path keys, Writer out) throws IOException {
        for (String line : Files.readAllLines(keys)) {
            long key = Long.parseLong(line);
            line(out, reader.store(), "key", key, reader.getDocument(Key.of(key)));
        }
        Dump dump = new Dump();
        try (DocumentScan scan = reader.scan()) {
            while (scan.hasNext()) {
                ScannedDocument seen = scan.next();
                long key = seen.key().number();
                line(out, reader.store(), "scan", key, seen.document());
                dump.ratings.put(key, seen.document().getLong("rating_count", 0));
            }
        }
        return dump;
    }

    private static void line(
            Writer out, String store, String by, long key, @Nullable Document document)
            throws IOException {
        JsonObject answer = new JsonObject();
        answer.addProperty("store", store);
        answer.addProperty("by", by);
        answer.addProperty("key", key);
        answer.add("document", document == null ? JsonNull.INSTANCE : fields(document));
        out.write(GSON.toJson(answer));
        out.write('\n');
    }

    private static JsonObject fields(Document document) {
        JsonObject fields = new JsonObject();
        for (String name : document.fields()) {
            fields.add(name, json(document.value(name)));
        }
        return fields;
    }

    /** Converts a value of the demo's types; a timestamp becomes its microseconds. */
    private static JsonElement json(@Nullable Object value) {
        if (value == null) {
            return JsonNull.INSTANCE;
        }
        if (value instanceof String text) {
            return new JsonPrimitive(text);
        }
        if (value instanceof Float number) {
            return new JsonPrimitive(number.doubleValue());
        }
        if (value instanceof Number number) {
            return new JsonPrimitive(number);
        }
        if (value instanceof Instant time) {
            return new JsonPrimitive(ChronoUnit.MICROS.between(Instant.EPOCH, time));
        }
        if (value instanceof List<?> items) {
            JsonArray all = new JsonArray();
            items.forEach(item -> all.add(json(item)));
            return all;
        }
        throw new IllegalStateException(
                "the demo's stores have no field of a " + value.getClass().getSimpleName());
    }

    /** Returns every key, in order. */
    long[] keys() {
        return ratings.keySet().stream().mapToLong(Long::longValue).toArray();
    }

    /** Returns the keys with the most ratings; of equal counts the smaller key is first. */
    List<Long> mostRated(int count) {
        return ratings.entrySet().stream()
                .sorted(Map.Entry.comparingByValue(Comparator.reverseOrder()))
                .limit(count)
                .map(Map.Entry::getKey)
                .toList();
    }
}
