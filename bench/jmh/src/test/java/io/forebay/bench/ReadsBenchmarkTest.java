/*
 * Every benchmark once, briefly: proves that it runs and that it checks its reads, but times
 * nothing.
 */
package io.forebay.bench;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.forebay.Key;
import java.util.Arrays;
import java.util.Collection;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.results.RunResult;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.Options;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.runner.options.TimeValue;

class ReadsBenchmarkTest {
    private static Set<String> declared() {
        return Arrays.stream(ReadsBenchmark.class.getDeclaredMethods())
                .filter(method -> method.isAnnotationPresent(Benchmark.class))
                .map(method -> ReadsBenchmark.class.getName() + "." + method.getName())
                .collect(Collectors.toCollection(TreeSet::new));
    }

    @Test
    void everyBenchmarkRunsWithoutAnError() throws RunnerException {
        Options options =
                new OptionsBuilder()
                        .include(ReadsBenchmark.class.getName())
                        .param("documents", "2000")
                        .forks(0)
                        .warmupIterations(0)
                        .measurementIterations(1)
                        .measurementTime(TimeValue.milliseconds(50))
                        .shouldFailOnError(true)
                        .build();
        Collection<RunResult> results = new Runner(options).run();
        Set<String> ran = new TreeSet<>();
        for (RunResult result : results) {
            ran.add(result.getParams().getBenchmark());
            assertTrue(result.getPrimaryResult().getScore() > 0, result.toString());
        }
        assertTrue(ran.size() >= 4, ran.toString());
        assertEquals(declared(), ran);
    }

    @Test
    void everyBenchmarkFailsOnAMiss() throws Exception {
        Data data = new Data();
        data.documents = 300;
        data.open();
        try {
            ReadsBenchmark reads = new ReadsBenchmark();
            assertEquals(data.numbers[0], reads.getLong(data, new ReadsBenchmark.Cursor()));
            data.delete(data.keys[0]);
            data.delete(Key.of(data.batchNumbers[0][0]));
            assertMisses(() -> reads.getLong(data, new ReadsBenchmark.Cursor()));
            assertMisses(() -> reads.getBytes(data, new ReadsBenchmark.Cursor()));
            assertMisses(() -> reads.getMany(data, new ReadsBenchmark.Cursor()));
            assertMisses(() -> reads.gather(data, new ReadsBenchmark.Cursor()));
        } finally {
            data.close();
        }
    }

    private static void assertMisses(Executable read) {
        assertThrows(IllegalStateException.class, read);
    }
}
