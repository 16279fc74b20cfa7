/* Checkpoint options of a reader. */
package io.forebay;

import java.nio.file.Path;
import java.time.Duration;

/**
 * Checkpoints of a reader: files from which the same reader continues after a restart, instead of
 * reading the log from its start. Readers of one folder, in one process or many, share one copy of
 * the store.
 *
 * @param directory the folder of the checkpoints; created if it is missing
 * @param every time between two checkpoints of a partition, in whole milliseconds; zero for 10 s
 * @param bytesMax size limit of a partition that is written, in bytes of its keys and rows, because
 *     nothing is applied to a partition while it is written; 0 for 4 GiB
 */
public record Checkpoints(Path directory, Duration every, long bytesMax) {
    /**
     * Returns checkpoints every 10 s, of partitions of up to 4 GiB.
     *
     * @param directory the folder of the checkpoints
     * @return the checkpoints
     */
    public static Checkpoints in(Path directory) {
        return new Checkpoints(directory, Duration.ZERO, 0);
    }

    /**
     * Returns the same checkpoints at another interval.
     *
     * @param interval time between two checkpoints of a partition, in whole milliseconds
     * @return the checkpoints
     */
    public Checkpoints every(Duration interval) {
        return new Checkpoints(directory, interval, bytesMax);
    }
}
