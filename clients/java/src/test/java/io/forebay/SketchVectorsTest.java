/*
 * Sketches of aggregates: Java's DataSketches reads Forebay's sketches, and writes those that
 * Forebay reads.
 */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import java.util.function.LongFunction;
import java.util.stream.LongStream;
import org.apache.datasketches.common.ArrayOfItemsSerDe;
import org.apache.datasketches.common.ArrayOfLongsSerDe;
import org.apache.datasketches.common.ArrayOfStringsSerDe;
import org.apache.datasketches.frequencies.ErrorType;
import org.apache.datasketches.frequencies.ItemsSketch;
import org.apache.datasketches.hll.HllSketch;
import org.apache.datasketches.hll.TgtHllType;
import org.apache.datasketches.hll.Union;
import org.apache.datasketches.memory.Memory;
import org.apache.datasketches.tdigest.TDigestDouble;
import org.junit.jupiter.api.Test;

class SketchVectorsTest {
    private static final String OURS = "proto/vectors/aggregates.json";
    private static final String JAVAS = "proto/vectors/sketches-java.json";
    private static final Gson GSON = new GsonBuilder().setPrettyPrinting().create();
    private static final double CLOSE = 1e-9;
    private static final double ONE_CENTROID = 1e-3;

    private static Path path(String file) {
        return Path.of(System.getProperty("forebay.root"), file);
    }

    /** Returns the values of a vector: see the file's description. */
    private static LongStream numbers(JsonObject vector) {
        JsonObject numbers = vector.getAsJsonObject("numbers");
        long modulus = numbers.get("modulus").getAsLong();
        return LongStream.range(0, numbers.get("count").getAsLong()).map(n -> n * 7919 % modulus);
    }

    private static boolean isText(JsonObject vector) {
        return vector.get("input").getAsString().equals("string");
    }

    private static int parameter(JsonObject vector, String name) {
        return vector.getAsJsonObject("parameters").get(name).getAsInt();
    }

    private static byte[] sketch(JsonObject vector) {
        return HexFormat.of().parseHex(vector.get("sketch_hex").getAsString());
    }

    /** Updates a sketch with a number, in the form of its column's type. */
    private static void update(HllSketch sketch, String input, long number) {
        switch (input) {
            case "bool" -> sketch.update(number % 2);
            case "float32", "float64" -> sketch.update(number / 8.0);
            case "string" -> sketch.update("item-" + number);
            case "bytes" -> sketch.update(HexFormat.of().parseHex(littleEndian(number)));
            default -> sketch.update(number);
        }
    }

    private static String littleEndian(long number) {
        return HexFormat.of().toHexDigits(Long.reverseBytes(number));
    }

    private static HllSketch distinct(JsonObject vector) {
        HllSketch sketch = new HllSketch(parameter(vector, "lg_k"), TgtHllType.HLL_8);
        String input = vector.get("input").getAsString();
        numbers(vector).forEach(number -> update(sketch, input, number));
        return sketch;
    }

    private static TDigestDouble quantiles(JsonObject vector) {
        TDigestDouble digest = new TDigestDouble((short) parameter(vector, "k"));
        double unit = vector.get("input").getAsString().startsWith("float") ? 8.0 : 1.0;
        numbers(vector).forEach(number -> digest.update(number / unit));
        return digest;
    }

    private static <T> ItemsSketch<T> frequent(JsonObject vector, LongFunction<T> item) {
        ItemsSketch<T> sketch = new ItemsSketch<>(1 << parameter(vector, "lg_counters"));
        numbers(vector).forEach(number -> sketch.update(item.apply(number)));
        return sketch;
    }

    private static double estimate(HllSketch sketch) {
        // The union with itself forgets the order of its values, as Forebay's sketches do.
        Union union = new Union(sketch.getLgConfigK());
        union.update(sketch);
        union.update(sketch);
        return union.getEstimate();
    }

    private static double number(JsonElement value) {
        return Double.longBitsToDouble(Long.parseUnsignedLong(value.getAsString(), 16));
    }

    private static void checkDistinct(JsonObject vector) {
        HllSketch read = HllSketch.heapify(sketch(vector));
        JsonArray values = vector.getAsJsonArray("values");
        assertEquals(values.get(0).getAsLong(), Math.round(read.getEstimate()));
        int bounds = parameter(vector, "bounds");
        assertEquals(values.get(1).getAsLong(), (long) Math.floor(read.getLowerBound(bounds)));
        assertEquals(values.get(2).getAsLong(), (long) Math.ceil(read.getUpperBound(bounds)));
        HllSketch own = distinct(vector);
        assertEquals(estimate(own), read.getEstimate(), CLOSE * read.getEstimate());
        Union union = new Union(read.getLgConfigK());
        union.update(read);
        union.update(own);
        assertEquals(read.getEstimate(), union.getEstimate(), CLOSE, "the hashes differ");
    }

    /**
     * Compares by ranks: quantiles of releases for Java 17 swap two weights (datasketches-java,
     * 755).
     */
    private static void checkQuantiles(JsonObject vector) {
        byte[] sketch = sketch(vector);
        TDigestDouble read = TDigestDouble.heapify(Memory.wrap(sketch));
        assertArrayEquals(sketch, read.toByteArray());
        read.merge(waiting(vector, read.getK()));
        assertEquals(numbers(vector).count(), read.getTotalWeight());
        JsonArray ranks = vector.getAsJsonObject("parameters").getAsJsonArray("ranks");
        for (int place = 0; place < ranks.size(); place++) {
            JsonElement value = vector.getAsJsonArray("values").get(place);
            double rank = ranks.get(place).getAsDouble();
            if (read.isEmpty()) {
                assertTrue(value.isJsonNull());
            } else if (rank == 0.0 || rank == 1.0) {
                double expected = rank == 0.0 ? read.getMinValue() : read.getMaxValue();
                assertEquals(expected, number(value));
            } else {
                double slack = 0.02 + 1.0 / read.getTotalWeight();
                assertEquals(rank, read.getRank(number(value)), slack);
            }
        }
    }

    /** Returns the values of a state that are not in its digest yet. */
    private static TDigestDouble waiting(JsonObject vector, short k) {
        byte[] state = HexFormat.of().parseHex(vector.get("state_hex").getAsString());
        ByteBuffer bytes = ByteBuffer.wrap(state).order(ByteOrder.LITTLE_ENDIAN).position(2);
        int count = bytes.getShort();
        TDigestDouble batch = new TDigestDouble(k);
        for (int number = 0; number < count; number++) {
            batch.update(bytes.getDouble());
        }
        return batch;
    }

    private static <T> void checkFrequent(JsonObject vector, ArrayOfItemsSerDe<T> serDe) {
        ItemsSketch<T> read = ItemsSketch.getInstance(Memory.wrap(sketch(vector)), serDe);
        assertEquals(numbers(vector).count(), read.getStreamLength());
        JsonElement items = vector.getAsJsonArray("values").get(0);
        if (items.isJsonNull()) {
            assertTrue(read.isEmpty());
            return;
        }
        JsonArray counts = vector.getAsJsonArray("values").get(1).getAsJsonArray();
        for (int place = 0; place < counts.size(); place++) {
            JsonElement item = items.getAsJsonArray().get(place);
            @SuppressWarnings("unchecked")
            T key = (T) (isText(vector) ? (Object) item.getAsString() : (Object) asLong(item));
            assertEquals(counts.get(place).getAsLong(), read.getEstimate(key));
        }
    }

    private static Long asLong(JsonElement item) {
        boolean isBool = item.getAsJsonPrimitive().isBoolean();
        return isBool ? Long.valueOf(item.getAsBoolean() ? 1 : 0) : Long.valueOf(item.getAsLong());
    }

    @Test
    void javaReadsTheSketchesOfOurStates() throws IOException {
        JsonObject held = JsonParser.parseString(Files.readString(path(OURS))).getAsJsonObject();
        int checked = 0;
        for (JsonElement element : held.getAsJsonArray("states")) {
            JsonObject vector = element.getAsJsonObject();
            if (!vector.has("sketch_hex")) {
                continue;
            }
            switch (vector.get("kind").getAsString()) {
                case "distinct_count" -> checkDistinct(vector);
                case "quantiles" -> checkQuantiles(vector);
                default -> {
                    if (isText(vector)) {
                        checkFrequent(vector, new ArrayOfStringsSerDe());
                    } else {
                        checkFrequent(vector, new ArrayOfLongsSerDe());
                    }
                }
            }
            checked++;
        }
        assertTrue(checked > 30, checked + " sketches");
    }

    private static JsonObject vector(String kind, String input, JsonObject parameters, int... of) {
        JsonObject vector = new JsonObject();
        vector.addProperty("kind", kind);
        vector.addProperty("input", input);
        vector.add("parameters", parameters);
        JsonObject numbers = new JsonObject();
        numbers.addProperty("count", of[0]);
        numbers.addProperty("modulus", of[1]);
        vector.add("numbers", numbers);
        return vector;
    }

    private static JsonObject parameters(String name, int value) {
        JsonObject parameters = new JsonObject();
        parameters.addProperty(name, value);
        return parameters;
    }

    private static JsonObject madeDistinct(String input, int... of) {
        JsonObject vector = vector("distinct_count", input, parameters("lg_k", 8), of);
        HllSketch sketch = distinct(vector);
        vector.addProperty("sketch_hex", HexFormat.of().formatHex(sketch.toCompactByteArray()));
        return vector;
    }

    private static JsonObject madeQuantiles(int... of) {
        JsonObject vector = vector("quantiles", "int64", parameters("k", 50), of);
        TDigestDouble digest = quantiles(vector);
        vector.addProperty("sketch_hex", HexFormat.of().formatHex(digest.toByteArray()));
        return vector;
    }

    private static <T> JsonObject madeFrequent(
            String input,
            LongFunction<T> item,
            ArrayOfItemsSerDe<T> serDe,
            int... of) {
        JsonObject vector = vector("top_k", input, parameters("lg_counters", 5), of);
        ItemsSketch<T> sketch = frequent(vector, item);
        assertTrue(sketch.getNumActiveItems() > 0, "Java writes such a sketch without its weight");
        vector.addProperty("sketch_hex", HexFormat.of().formatHex(sketch.toByteArray(serDe)));
        JsonObject values = new JsonObject();
        for (var row : sketch.getFrequentItems(0, ErrorType.NO_FALSE_NEGATIVES)) {
            values.addProperty(row.getItem().toString(), Long.toString(row.getEstimate()));
        }
        vector.add("values", values);
        return vector;
    }

    private static String made() {
        JsonArray sketches = new JsonArray();
        sketches.add(madeDistinct("int64", 5, 5));
        sketches.add(madeDistinct("string", 20, 17));
        sketches.add(madeDistinct("float64", 3000, 3001));
        sketches.add(madeDistinct("int64", 30000, 30011));
        sketches.add(madeQuantiles(1, 1));
        sketches.add(madeQuantiles(100, 97));
        sketches.add(madeQuantiles(20000, 10007));
        sketches.add(madeFrequent("int64", Long::valueOf, new ArrayOfLongsSerDe(), 40, 7));
        sketches.add(madeFrequent("int64", Long::valueOf, new ArrayOfLongsSerDe(), 3010, 61));
        sketches.add(
                madeFrequent("string", n -> "item-" + n, new ArrayOfStringsSerDe(), 1010, 29));
        JsonObject file = new JsonObject();
        file.addProperty("spec", "proto/spec/aggregates.md");
        file.addProperty(
                "description",
                "Sketches that DataSketches of Java wrote; `numbers` as in aggregates.json. Values:"
                        + " how often an item is there at most, as digits.");
        file.add("sketches", sketches);
        return GSON.toJson(file) + "\n";
    }

    @Test
    void javaSketchesMatchTheGoldenVectors() throws IOException {
        String made = made();
        if (System.getenv("UPDATE_VECTORS") != null) {
            Files.writeString(path(JAVAS), made);
        }
        JsonObject held = JsonParser.parseString(Files.readString(path(JAVAS))).getAsJsonObject();
        JsonObject now = JsonParser.parseString(made).getAsJsonObject();
        String fix = "fix: UPDATE_VECTORS=1 and this test; then the Rust test that reads them";
        List<JsonElement> before = held.getAsJsonArray("sketches").asList();
        List<JsonElement> after = now.getAsJsonArray("sketches").asList();
        assertEquals(before.size(), after.size(), fix);
        for (int place = 0; place < before.size(); place++) {
            takeAlike(before.get(place).getAsJsonObject(), after.get(place).getAsJsonObject());
        }
        assertEquals(GSON.toJson(held), GSON.toJson(now), fix);
    }

    /**
     * Compares a digest with the stored one, and then takes the stored bytes: a logarithm decides
     * where a centroid ends, and its last digit changes once Java has compiled the method. Other
     * sketches are unchanged.
     */
    private static void takeAlike(JsonObject held, JsonObject made) {
        boolean isDigest = made.get("kind").getAsString().equals("quantiles");
        if (!isDigest || !held.get("kind").equals(made.get("kind"))) {
            return;
        }
        TDigestDouble before = TDigestDouble.heapify(Memory.wrap(sketch(held)));
        TDigestDouble now = TDigestDouble.heapify(Memory.wrap(sketch(made)));
        assertEquals(before.getTotalWeight(), now.getTotalWeight());
        assertEquals(before.getMinValue(), now.getMinValue());
        assertEquals(before.getMaxValue(), now.getMaxValue());
        numbers(made).forEach(n -> assertEquals(before.getRank(n), now.getRank(n), ONE_CENTROID));
        made.add("sketch_hex", held.get("sketch_hex"));
    }
}
