/* Options of a reader. */
package io.forebay;

import java.nio.file.Path;
import java.time.Duration;
import java.util.SortedSet;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;

/**
 * A reader's options. Immutable.
 *
 * <pre>{@code
 * ReaderOptions options =
 *         ReaderOptions.builder("users")
 *                 .checkpointDir(Path.of("/var/lib/users"))
 *                 .memoryLimit(8L << 30)
 *                 .snapshots("s3://bucket/folder")
 *                 .build();
 * }</pre>
 */
public final class ReaderOptions {
    private static final int BYTES = HeaderConstants.READER_OPTIONS_STRUCT_BYTES;

    private final String store;
    private final @Nullable SortedSet<Integer> partitions;
    private final boolean allowIncompleteReads;
    private final Duration readyMaxStaleness;
    private final Duration openTimeout;
    private final @Nullable Path checkpointDir;
    private final Duration checkpointInterval;
    private final long checkpointBytesMax;
    private final long memoryLimit;
    private final long spillLimit;
    private final @Nullable String snapshots;

    private ReaderOptions(Builder builder) {
        store = builder.store;
        partitions = builder.partitions;
        allowIncompleteReads = builder.allowIncompleteReads;
        readyMaxStaleness = builder.readyMaxStaleness;
        openTimeout = builder.openTimeout;
        checkpointDir = builder.checkpointDir;
        checkpointInterval = builder.checkpointInterval;
        checkpointBytesMax = builder.checkpointBytesMax;
        memoryLimit = builder.memoryLimit;
        spillLimit = builder.spillLimit;
        snapshots = builder.snapshots;
    }

    /**
     * Returns a builder of the options of a reader of all partitions of a store.
     *
     * @param store the store's name
     * @return the builder
     */
    public static Builder builder(String store) {
        return new Builder(store);
    }

    /** Builds options. Belongs to one thread. */
    public static final class Builder {
        private static final Duration TEN_SECONDS = Duration.ofSeconds(10);

        private final String store;
        private @Nullable SortedSet<Integer> partitions;
        private boolean allowIncompleteReads;
        private Duration readyMaxStaleness = TEN_SECONDS;
        private Duration openTimeout = TEN_SECONDS;
        private @Nullable Path checkpointDir;
        private Duration checkpointInterval = Duration.ZERO;
        private long checkpointBytesMax;
        private long memoryLimit;
        private long spillLimit;
        private @Nullable String snapshots;

        private Builder(String store) {
            this.store = store;
        }

        /**
         * Follows only these partitions; reads of others are refused. All partitions unless set.
         *
         * @param only their numbers
         * @return this builder
         */
        public Builder partitions(SortedSet<Integer> only) {
            partitions = new TreeSet<>(only);
            return this;
        }

        /**
         * Sets whether the reader answers also from partitions that have not caught up, for which
         * absent may mean not yet.
         *
         * @param isAllowed whether it answers from them; false unless set
         * @return this builder
         */
        public Builder allowIncompleteReads(boolean isAllowed) {
            allowIncompleteReads = isAllowed;
            return this;
        }

        /**
         * Sets the highest staleness at which the reader becomes ready.
         *
         * @param bound the staleness, in whole milliseconds; 10 s unless set
         * @return this builder
         */
        public Builder readyMaxStaleness(Duration bound) {
            readyMaxStaleness = bound;
            return this;
        }

        /**
         * Sets the longest wait of the open.
         *
         * @param timeout the wait, in whole milliseconds; 10 s unless set
         * @return this builder
         */
        public Builder openTimeout(Duration timeout) {
            openTimeout = timeout;
            return this;
        }

        /**
         * Writes checkpoints to a folder: files from which the same reader continues after a
         * restart, instead of reading the log from its start. Readers of one folder, in one process
         * or many, share one copy of the store. No checkpoints unless set.
         *
         * @param directory the folder of the checkpoints; created if it is missing
         * @return this builder
         */
        public Builder checkpointDir(Path directory) {
            checkpointDir = directory;
            return this;
        }

        /**
         * Sets the time between two checkpoints of a partition.
         *
         * @param interval the time, in whole milliseconds; 10 s unless set
         * @return this builder
         */
        public Builder checkpointInterval(Duration interval) {
            checkpointInterval = interval;
            return this;
        }

        /**
         * Sets the size limit of a partition that is written to a checkpoint, because nothing is
         * applied to a partition while it is written.
         *
         * @param bytes the limit, in bytes of the partition's keys and rows; 4 GiB unless set
         * @return this builder
         */
        public Builder checkpointBytesMax(long bytes) {
            checkpointBytesMax = bytes;
            return this;
        }

        /**
         * Limits the memory of the documents and their index. If an entry needs more memory, the
         * reader spills documents, if it may. Otherwise the reader stops applying entries, and its
         * status says so; it still answers reads, which turn stale by their bounds. Readers that
         * share a copy count it once, in the limit of the reader that maintains it.
         *
         * @param bytes most bytes, not below 0; unless set, and for 0, half of the control group's
         *     limit or of the host's memory, whichever is less, and less than half if half would
         *     leave less than 56 MiB and 8 MiB for each partition
         * @return this builder
         */
        public Builder memoryLimit(long bytes) {
            memoryLimit = bytes;
            return this;
        }

        /**
         * Limits the disk space, in the directory of the checkpoints ({@link #checkpointDir}), of
         * documents that exceed the memory limit; without such a directory the reader is refused.
         * The reader spills the least recently written documents, and a read of a spilled document
         * waits for the disk; the index stays in memory. Nothing is spilled unless set.
         *
         * @param bytes most bytes of spilled documents, not below 0
         * @return this builder
         */
        public Builder spillLimit(long bytes) {
            spillLimit = bytes;
            return this;
        }

        /**
         * Starts from a snapshot if there is no checkpoint, and follows the log from there. A
         * snapshot avoids reading the whole log, and replaces the trimmed part of the log. The
         * snapshot's images are fetched into the directory of the checkpoints. Credentials come
         * from the environment, by the names that the object stores' own tools use.
         *
         * @param url the folder of the snapshots: {@code file:///folder}, {@code
         *     s3://bucket/folder}, {@code az://container/folder} or {@code gs://bucket/folder};
         *     opening a reader with a URL that names no such folder throws {@link
         *     InvalidArgumentException}
         * @return this builder
         */
        public Builder snapshots(String url) {
            snapshots = url;
            return this;
        }

        /**
         * Returns the options; the builder can be used further.
         *
         * @return the options
         */
        public ReaderOptions build() {
            return new ReaderOptions(this);
        }
    }

    String store() {
        return store;
    }

    /** Writes an fb_reader_options; returns its address. */
    long encode(CallBuffer call) {
        check();
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
        place.buffer().putLong(place.at() + 32, ReadOptions.millis(readyMaxStaleness));
        place.buffer().putLong(place.at() + 40, ReadOptions.millis(openTimeout));
        place.buffer().putInt(place.at() + 48, allowIncompleteReads ? 1 : 0);
        if (checkpointDir != null) {
            String directory = checkpointDir.toAbsolutePath().toString();
            call.text(place.buffer(), place.at() + 56, directory);
            place.buffer().putLong(place.at() + 72, ReadOptions.millis(checkpointInterval));
            place.buffer().putLong(place.at() + 80, checkpointBytesMax);
        }
        place.buffer().putLong(place.at() + 88, memoryLimit);
        place.buffer().putLong(place.at() + 96, spillLimit);
        if (snapshots != null) {
            call.text(place.buffer(), place.at() + 104, snapshots);
        }
        return place.address();
    }

    private void check() {
        boolean setsCheckpoints = !checkpointInterval.isZero() || checkpointBytesMax != 0;
        if (checkpointDir == null && setsCheckpoints) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT,
                    "checkpointInterval and checkpointBytesMax need checkpointDir; name the"
                            + " directory of the checkpoints");
        }
        if (memoryLimit < 0) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT,
                    "the memory limit is below 0 bytes; give 0 or more");
        }
        if (spillLimit < 0) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT,
                    "the limit of spilled documents is below 0 bytes; give 0 or more");
        }
        if (snapshots != null && snapshots.isEmpty()) {
            // The native core treats an empty text as none.
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT,
                    "an empty URL names no folder for snapshots; give file:///FOLDER, or none");
        }
    }
}
