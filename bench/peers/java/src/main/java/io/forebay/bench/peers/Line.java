/* D in this process: the cost of one dependent line of the library's own mapping. */
package io.forebay.bench.peers;

import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import sun.misc.Unsafe;

/**
 * Loads lines of the memory in which the library holds its records: the writable mappings that end
 * at the start of a large reserve of addresses.
 */
final class Line {
    /**
     * Smallest size of such a reserve; no other reserve of this process, nor the heap's, is as
     * large.
     */
    private static final long RESERVED_MIN = 1L << 33;
    private static final long TAKEN_MIN = 1L << 20;
    private static final int LINE = 64;
    private static final int CHUNK = 512;
    private static final int CHUNKS = 400;

    private record Mapping(long start, long end, String rights) {}

    private final Unsafe unsafe;
    private final long[] starts;
    private final long[] lines;
    private long at;
    private long loads;

    Line() throws IOException, ReflectiveOperationException {
        Field field = Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        unsafe = (Unsafe) field.get(null);
        List<Mapping> taken = taken();
        if (taken.isEmpty()) {
            throw new IllegalStateException("the library's mapping is not among this process's");
        }
        starts = taken.stream().mapToLong(Mapping::start).toArray();
        lines = taken.stream().mapToLong(it -> (it.end() - it.start()) / LINE).toArray();
    }

    private static List<Mapping> taken() throws IOException {
        List<Mapping> all = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of("/proc/self/maps"))) {
            String[] words = line.split("\\s+");
            String[] ends = words[0].split("-");
            if (words.length == 5) {
                long start = Long.parseUnsignedLong(ends[0], 16);
                all.add(new Mapping(start, Long.parseUnsignedLong(ends[1], 16), words[1]));
            }
        }
        List<Mapping> taken = new ArrayList<>();
        for (int place = 0; place + 1 < all.size(); place++) {
            Mapping here = all.get(place);
            Mapping after = all.get(place + 1);
            boolean reserved =
                    after.rights().startsWith("---")
                            && after.start() == here.end()
                            && after.end() - after.start() >= RESERVED_MIN;
            boolean large = here.end() - here.start() >= TAKEN_MIN;
            if (reserved && large && here.rights().startsWith("rw")) {
                taken.add(here);
            }
        }
        return taken;
    }

    /** Returns the size of the memory that the loads cover, in megabytes. */
    double megabytes() {
        return Arrays.stream(lines).sum() * LINE / 1e6;
    }

    /** Returns nanoseconds of one line: the median over chunks. */
    double measure() {
        long[] chunks = new long[CHUNKS];
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            long began = System.nanoTime();
            at = chase(at);
            chunks[chunk] = System.nanoTime() - began;
        }
        Arrays.sort(chunks);
        return chunks[CHUNKS / 2] / (double) CHUNK;
    }

    private long chase(long from) {
        long found = from;
        for (int load = 0; load < CHUNK; load++) {
            // The count of loads is part of each address; otherwise the chain would run into a
            // circle.
            long hash = Data.mix(found + ++loads);
            int mapping = (int) (hash & 0xffff) % starts.length;
            long line = Math.multiplyHigh(hash >>> 1, lines[mapping] << 1);
            found = unsafe.getLong(starts[mapping] + line * LINE);
        }
        return found;
    }
}
