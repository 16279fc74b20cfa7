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
 */
public record ReaderOptions(
        String store,
        @Nullable SortedSet<Integer> partitions,
        boolean servePartial,
        Duration readyAgeMax,
        Duration openTimeout,
        @Nullable Checkpoints checkpoints) {
    private static final int BYTES = 88;
    private static final Duration TEN_SECONDS = Duration.ofSeconds(10);

    /**
     * A reader of all partitions of a store.
     *
     * @param store the store's name
     * @return the options
     */
    public static ReaderOptions of(String store) {
        return new ReaderOptions(store, null, false, TEN_SECONDS, TEN_SECONDS, null);
    }

    /**
     * The same, following these partitions alone; reads of others are refused.
     *
     * @param only their numbers
     * @return the options
     */
    public ReaderOptions following(SortedSet<Integer> only) {
        return new ReaderOptions(
                store, new TreeSet<>(only), servePartial, readyAgeMax, openTimeout, checkpoints);
    }

    /**
     * The same, also answering from partitions that have not caught up once.
     *
     * @return the options
     */
    public ReaderOptions servingPartial() {
        return new ReaderOptions(
                store, partitions, true, readyAgeMax, openTimeout, checkpoints);
    }

    /**
     * The same, keeping checkpoints.
     *
     * @param kept where and how often
     * @return the options
     */
    public ReaderOptions keeping(Checkpoints kept) {
        return new ReaderOptions(
                store, partitions, servePartial, readyAgeMax, openTimeout, kept);
    }

    long encode(CallBuffer call) {
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
        return place.address();
    }
}
