/* Cost of reads from this process's own memory. */
package io.forebay.bench;

import io.forebay.PackedValues;
import java.nio.ByteBuffer;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.Warmup;

/**
 * Reads of existing documents. Each result is checked against the written value within the measured
 * time: a miss is an error, never a fast hit.
 */
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 5, time = 1)
@Measurement(iterations = 5, time = 1)
@Fork(2)
public class ReadsBenchmark {
    /** A thread's position in the keys, and its output. */
    @State(Scope.Thread)
    public static class Cursor {
        private final double[] matrix = new double[Data.BATCH * Data.GATHERED.size()];
        private int next;

        private int single() {
            return next++ & (Data.SINGLES - 1);
        }

        private int batch() {
            return next++ & (Data.BATCHES - 1);
        }
    }

    private static void check(long expected, long found) {
        if (expected != found) {
            throw new IllegalStateException("document " + expected + " was read as " + found);
        }
    }

    /**
     * Reads one number, without an object.
     *
     * @param data the data
     * @param cursor the position of the next key
     * @return the number
     */
    @Benchmark
    public long getLong(Data data, Cursor cursor) {
        int place = cursor.single();
        long found = data.reader().getLong(data.number(), data.keys[place], -1);
        check(data.numbers[place], found);
        return found;
    }

    /**
     * Reads 64 bytes, copied from the native core's buffer.
     *
     * @param data the data
     * @param cursor the position of the next key
     * @return the bytes
     */
    @Benchmark
    public byte[] getBytes(Data data, Cursor cursor) {
        int place = cursor.single();
        byte[] found = data.reader().getBytes(data.line(), data.keys[place]);
        check(data.numbers[place], found == null ? -1 : ByteBuffer.wrap(found).getLong());
        return found;
    }

    /**
     * Reads 64 bytes each of 100 documents, in one call; the check copies each value.
     *
     * @param data the data
     * @param cursor the position of the next batch
     * @return the values
     */
    @Benchmark
    public PackedValues getMany(Data data, Cursor cursor) {
        int batch = cursor.batch();
        PackedValues found = data.reader().getMany(data.line(), data.batches[batch]);
        for (int place = 0; place < Data.BATCH; place++) {
            byte[] bytes = found.bytes(place);
            long number = bytes == null ? -1 : ByteBuffer.wrap(bytes).getLong();
            check(data.batchNumbers[batch][place], number);
        }
        return found;
    }

    /**
     * Reads four fields of 100 documents, into a reused matrix.
     *
     * @param data the data
     * @param cursor the position of the next batch, and the matrix
     * @return the matrix
     */
    @Benchmark
    public double[] gather(Data data, Cursor cursor) {
        int batch = cursor.batch();
        double[] matrix = cursor.matrix;
        // A row that is not overwritten must not look like the last one.
        matrix[0] = -1;
        data.reader().gather(data.plan(), data.batches[batch], matrix, null, null);
        for (int place = 0; place < Data.BATCH; place++) {
            double number = matrix[place * Data.GATHERED.size()];
            check(data.batchNumbers[batch][place], (long) number);
        }
        return matrix;
    }
}
