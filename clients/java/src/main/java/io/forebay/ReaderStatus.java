/* How a reader and each of its partitions are at one moment. */
package io.forebay;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A reader at one moment.
 *
 * @param store the store's name
 * @param isReady whether the process should get traffic
 * @param phase the phase of the partition that is furthest from serving
 * @param percent how much of all first copies is done, 0 to 100: of the snapshots that they begin
 *     with while any is fetched, then of the logs behind them
 * @param remaining time until they are done; null before there is a rate
 * @param age the highest age of its partitions; null while one is unknown
 * @param schemaVersion the newest schema version that any partition has seen
 * @param partitions every followed partition, in order
 */
public record ReaderStatus(
        String store,
        boolean isReady,
        Phase phase,
        int percent,
        @Nullable Duration remaining,
        @Nullable Duration age,
        int schemaVersion,
        List<Partition> partitions) {
    /** Whether a partition answers. */
    public enum Phase {
        /** It has not caught up once, and answers {@code Unavailable}. */
        BOOTSTRAPPING,
        /** It answers. */
        SERVING,
        /** An invariant of it broke; it answers {@code Internal} until it is rebuilt. */
        POISONED;

        static Phase of(int code) {
            return values()[code - 1];
        }
    }

    /**
     * One partition of a reader.
     *
     * @param partition its number
     * @param phase whether it answers
     * @param generation the number of the copy that is served, from 1
     * @param offsetApplied the first offset that is not applied yet
     * @param end the log's end, as last heard
     * @param lagRecords records between the two
     * @param age how old the served data may be; null while nothing tells
     * @param schemaVersion the newest schema version that it has seen
     * @param documents documents held
     * @param bytes bytes of their keys and rows
     * @param fetching how far the snapshot is that the copy is to begin with; null unless it is
     *     fetched or waits for its turn
     * @param trouble why it applies nothing; null when it does
     */
    public record Partition(
            int partition,
            Phase phase,
            int generation,
            long offsetApplied,
            long end,
            long lagRecords,
            @Nullable Duration age,
            int schemaVersion,
            long documents,
            long bytes,
            @Nullable Fetching fetching,
            @Nullable String trouble) {}

    /**
     * How much of a snapshot's image is there.
     *
     * @param bytes bytes that are
     * @param bytesInAll all of them
     */
    public record Fetching(long bytes, long bytesInAll) {
        static @Nullable Fetching unpack(Unpacker packed) {
            long bytes = packed.i64();
            long bytesInAll = packed.i64();
            return bytesInAll == 0 ? null : new Fetching(bytes, bytesInAll);
        }
    }

    static ReaderStatus unpack(Unpacker packed) {
        String store = packed.text();
        boolean isReady = packed.flag();
        Phase phase = Phase.of(packed.u8());
        int percent = packed.u8();
        Duration remaining = packed.duration();
        Duration age = packed.duration();
        int schemaVersion = packed.i32();
        int count = packed.i32();
        List<Partition> partitions = new ArrayList<>(count);
        for (int place = 0; place < count; place++) {
            partitions.add(
                    new Partition(
                            packed.i32(),
                            Phase.of(packed.u8()),
                            packed.i32(),
                            packed.i64(),
                            packed.i64(),
                            packed.i64(),
                            packed.duration(),
                            packed.i32(),
                            packed.i64(),
                            packed.i64(),
                            Fetching.unpack(packed),
                            emptyToNull(packed.text())));
        }
        List<Partition> all = List.copyOf(partitions);
        return new ReaderStatus(
                store, isReady, phase, percent, remaining, age, schemaVersion, all);
    }

    private static @Nullable String emptyToNull(String text) {
        return text.isEmpty() ? null : text;
    }
}
