/* Where and how often a reader writes checkpoints. */
package io.forebay;

import java.nio.file.Path;
import java.time.Duration;

/**
 * Checkpoints of a reader: files from which the same reader goes on after a restart, instead of
 * reading the log from its start. Readers of one folder, in one process or many, answer from one
 * copy of the store.
 *
 * @param directory the folder for them; made when it is missing
 * @param every time between two checkpoints of a partition, in whole milliseconds; zero for 10 s
 * @param bytesMax largest partition that is written, in bytes of its keys and rows, for nothing of
 *     it is applied meanwhile; 0 for 4 GiB
 */
public record Checkpoints(Path directory, Duration every, long bytesMax) {
    /**
     * Checkpoints every 10 s, of partitions of up to 4 GiB.
     *
     * @param directory the folder for them
     * @return the checkpoints
     */
    public static Checkpoints in(Path directory) {
        return new Checkpoints(directory, Duration.ZERO, 0);
    }

    /**
     * The same, at another interval.
     *
     * @param interval time between two checkpoints of a partition, in whole milliseconds
     * @return the checkpoints
     */
    public Checkpoints every(Duration interval) {
        return new Checkpoints(directory, interval, bytesMax);
    }
}
