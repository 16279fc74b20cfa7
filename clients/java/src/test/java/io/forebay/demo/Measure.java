/* Cost of reads: gets of one field in blocks, and gathers into a reused matrix. */
package io.forebay.demo;

import com.google.gson.JsonObject;
import io.forebay.FieldHandle;
import io.forebay.FieldType;
import io.forebay.ForebayReader;
import io.forebay.GatherField;
import io.forebay.GatherPlan;
import io.forebay.Key;
import io.forebay.Keys;
import java.util.List;
import java.util.Random;

/** Measures reads. */
final class Measure {
    /** The gathered fields, in this order. */
    static final List<String> GATHERED =
            List.of(
                    "year",
                    "rating_count",
                    "rating_sum",
                    "rating_min",
                    "rating_max",
                    "last_rated",
                    "high_count",
                    "low_count");

    /** Gets between two clock readings: a reading costs as much as a get. */
    private static final int GETS_PER_BLOCK = 256;

    private static final int BLOCKS = 1_000;

    /** Warm-up blocks: many, because the virtual machine compiles code that has run often. */
    private static final int BLOCKS_BEFORE = 500;

    private static final int GATHERS = 300;
    private static final int GATHERS_BEFORE = 300;

    /** Arbitrary seed: each run reads the same keys. */
    private static final long SEED = 41;

    private Measure() {}

    /** Measures gets of one field of random existing movies. */
    static JsonObject gets(ForebayReader movies, long[] keys) {
        FieldHandle count = movies.field("rating_count", FieldType.INT64);
        Random random = new Random(SEED);
        Times times = new Times();
        Key[] asked = new Key[GETS_PER_BLOCK];
        for (int block = 0; block < BLOCKS_BEFORE + BLOCKS; block++) {
            for (int place = 0; place < asked.length; place++) {
                asked[place] = Key.of(keys[random.nextInt(keys.length)]);
            }
            boolean allFound = true;
            long began = System.nanoTime();
            for (Key key : asked) {
                allFound &= movies.getLong(count, key, -1) >= 0;
            }
            long took = System.nanoTime() - began;
            if (!allFound) {
                throw new IllegalStateException("a get did not find its movie");
            }
            if (block >= BLOCKS_BEFORE) {
                times.record(took / GETS_PER_BLOCK);
            }
        }
        JsonObject figures = new JsonObject();
        figures.addProperty("p50_ns", times.nanos(0.5));
        figures.addProperty("p99_ns", times.nanos(0.99));
        return figures;
    }

    /** Measures gathers of the candidates, with a plan that is created once. */
    static JsonObject gathers(ForebayReader movies, Keys candidates) {
        GatherPlan plan = plan(movies);
        double[] matrix = new double[candidates.size() * plan.width()];
        Times times = new Times();
        for (int round = 0; round < GATHERS_BEFORE + GATHERS; round++) {
            long began = System.nanoTime();
            movies.gather(plan, candidates, matrix, null, null);
            long took = System.nanoTime() - began;
            if (round >= GATHERS_BEFORE) {
                times.record(took);
            }
        }
        JsonObject figures = new JsonObject();
        figures.addProperty("keys", candidates.size());
        figures.addProperty("fields", plan.width());
        return times.micros(figures);
    }

    /** Returns the plan. Counts and times are below 2^53, so a double holds them exactly. */
    static GatherPlan plan(ForebayReader movies) {
        List<GatherField> fields =
                GATHERED.stream()
                        .map(
                                name ->
                                        name.equals("year")
                                                ? new GatherField(name, 0)
                                                : new GatherField(name))
                        .toList();
        return movies.planGatherDoubles(fields, true);
    }
}
