/* Durations and their percentiles. */
package io.forebay.demo;

import com.google.gson.JsonObject;
import java.util.Arrays;

/** Durations in nanoseconds; a load is bounded, and a probe takes eight bytes here. */
final class Times {
    private long[] taken = new long[1024];
    private int count;

    void record(long nanos) {
        if (count == taken.length) {
            taken = Arrays.copyOf(taken, 2 * count);
        }
        taken[count++] = nanos;
    }

    int count() {
        return count;
    }

    /** Returns a quantile; 0 if there are no durations. */
    long nanos(double quantile) {
        if (count == 0) {
            return 0;
        }
        long[] sorted = Arrays.copyOf(taken, count);
        Arrays.sort(sorted);
        return sorted[Math.max(0, (int) Math.ceil(quantile * count) - 1)];
    }

    /** Adds the percentiles in microseconds. */
    JsonObject micros(JsonObject figures) {
        figures.addProperty("p50_us", nanos(0.5) / 1e3);
        figures.addProperty("p99_us", nanos(0.99) / 1e3);
        return figures;
    }
}
