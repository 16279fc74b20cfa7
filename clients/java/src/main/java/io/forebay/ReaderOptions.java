/* What a reader is asked to be. */
package io.forebay;

import java.time.Duration;
import java.util.SortedSet;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;

/**
 * A reader's options.
 *
 * @param store the store's name
 * @param partitions which partitions to follow, or null for all
 * @param servePartial answers from partitions that have not caught up, where absent may mean not
 *      yet
 * @param readyAgeMax oldest age at which the reader becomes ready
 * @param openTimeout longest wait of the opening
 * @param checkpoints where and how often to write checkpoints, from which a restart goes on; null
 *     for none
 * @param memoryBudget bytes that its documents and their index may take; 0 for half of the control
 *     group's limit or of the host's memory, whichever is less, and for less where that would leave
 *     below 56 MiB and 8 for each partition
 * @param spillBytesMax bytes of disk, in the directory of the checkpoints, that documents may take
 *     which have no room in memory; 0 spills nothing
 * @param snapshots URL of the folder of snapshots that it begins with where it has no checkpoint;
 *     null to begin with the log
 */
public record ReaderOptions(
        String store,
        @Nullable SortedSet<Integer> partitions,
        boolean servePartial,
        Duration readyAgeMax,
        Duration openTimeout,
        @Nullable Checkpoints checkpoints,
        long memoryBudget,
        long spillBytesMax,
        @Nullable String snapshots) {
    private static final int BYTES = 120;
    private static final Duration TEN_SECONDS = Duration.ofSeconds(10);

    /**
     * A reader of all partitions of a store.
     *
     * @param store the store's name
     * @return the options
     */
    public static ReaderOptions of(String store) {
        return new ReaderOptions(store, null, false, TEN_SECONDS, TEN_SECONDS, null, 0, 0, null);
    }

    /**
     * The same, following these partitions alone; reads of others are refused.
     *
     * @param only their numbers
     * @return the options
     */
    public ReaderOptions following(SortedSet<Integer> only) {
        return new ReaderOptions(
                store,
                new TreeSet<>(only),
                servePartial,
                readyAgeMax,
                openTimeout,
                checkpoints,
                memoryBudget,
                spillBytesMax,
                snapshots);
    }

    /**
     * The same, also answering from partitions that have not caught up once.
     *
     * @return the options
     */
    public ReaderOptions servingPartial() {
        return new ReaderOptions(
                store,
                partitions,
                true,
                readyAgeMax,
                openTimeout,
                checkpoints,
                memoryBudget,
                spillBytesMax,
                snapshots);
    }

    /**
     * The same, keeping checkpoints.
     *
     * @param kept where and how often
     * @return the options
     */
    public ReaderOptions keeping(Checkpoints kept) {
        return new ReaderOptions(
                store,
                partitions,
                servePartial,
                readyAgeMax,
                openTimeout,
                kept,
                memoryBudget,
                spillBytesMax,
                snapshots);
    }

    /**
     * The same, with a memory budget. Where an entry needs more, the reader spills, if it may; else
     * it stops applying and its status says so; it answers on, and turns stale by its bounds.
     * Readers that share a copy count it once, by the budget of the one that keeps it.
     *
     * @param bytes how much its documents and their index may take, not below 0; 0 for the default
     * @return the options
     */
    public ReaderOptions takingAtMost(long bytes) {
        return new ReaderOptions(
                store,
                partitions,
                servePartial,
                readyAgeMax,
                openTimeout,
                checkpoints,
                bytes,
                spillBytesMax,
                snapshots);
    }

    /**
     * The same, with room on disk, in the directory of the checkpoints ({@link #keeping}), for what
     * has none in memory; without such a directory the reader is refused. The documents that were
     * written longest ago go there, and a read of one waits for the disk; the index stays in
     * memory.
     *
     * @param bytes how much they may take there, not below 0; 0 to spill nothing
     * @return the options
     */
    public ReaderOptions spillingAtMost(long bytes) {
        return new ReaderOptions(
                store,
                partitions,
                servePartial,
                readyAgeMax,
                openTimeout,
                checkpoints,
                memoryBudget,
                bytes,
                snapshots);
    }

    /**
     * The same, beginning with a snapshot where there is no checkpoint, and following the log from
     * there. That spares reading the whole log, and takes the place of what was trimmed of it. The
     * snapshot's images are fetched into the directory of the checkpoints. Credentials come from
     * the environment, by the names that the stores' own tools use.
     *
     * @param url the folder of the snapshots: {@code file:///folder}, {@code s3://bucket/folder},
     *     {@code az://container/folder} or {@code gs://bucket/folder}; a reader of one that names
     *     no such folder is refused with {@link InvalidArgumentException}
     * @return the options
     */
    public ReaderOptions beginningWith(String url) {
        return new ReaderOptions(
                store,
                partitions,
                servePartial,
                readyAgeMax,
                openTimeout,
                checkpoints,
                memoryBudget,
                spillBytesMax,
                url);
    }

    long encode(CallBuffer call) {
        if (memoryBudget < 0) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT, "give a memory budget that is not below 0 bytes");
        }
        if (spillBytesMax < 0) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT,
                    "give room for spilled documents that is not below 0 bytes");
        }
        if (snapshots != null && snapshots.isEmpty()) {
            // The native core takes an empty text for none.
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT,
                    "an empty URL names no folder for snapshots; give file:///FOLDER, or null");
        }
        CallBuffer.Place place = call.allocate(BYTES);
        call.text(place.buffer(), place.at(), store);
        if (partitions != null) {
            CallBuffer.Place numbers = call.allocate(Math.max(8, 4L * partitions.size()));
            place.buffer().putLong(place.at() + 16, numbers.address());
            place.buffer().putLong(place.at() + 24, partitions.size());
            int at = numbers.at();
            for (int partition : partitions) {
                numbers.buffer().putInt(at, partition);
                at += 4;
            }
        }
        place.buffer().putLong(place.at() + 32, Read.millis(readyAgeMax));
        place.buffer().putLong(place.at() + 40, Read.millis(openTimeout));
        place.buffer().putInt(place.at() + 48, servePartial ? 1 : 0);
        if (checkpoints != null) {
            String directory = checkpoints.directory().toAbsolutePath().toString();
            call.text(place.buffer(), place.at() + 56, directory);
            place.buffer().putLong(place.at() + 72, Read.millis(checkpoints.every()));
            place.buffer().putLong(place.at() + 80, checkpoints.bytesMax());
        }
        place.buffer().putLong(place.at() + 88, memoryBudget);
        place.buffer().putLong(place.at() + 96, spillBytesMax);
        if (snapshots != null) {
            call.text(place.buffer(), place.at() + 104, snapshots);
        }
        return place.address();
    }
}
