/*
 * The second artifact works next to the client's jar, whether the client uses JNI or foreign
 * functions.
 */
package io.forebay.segments;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.forebay.FieldType;
import io.forebay.Forebay;
import io.forebay.ForebayReader;
import io.forebay.InMemoryReader;
import io.forebay.Key;
import io.forebay.KeyType;
import io.forebay.StoreSpec;
import io.forebay.Write;
import java.io.File;
import java.lang.foreign.MemorySegment;
import java.net.URISyntaxException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.slf4j.Logger;

class CrossingTest {
    /** The program that runs on the two jars. */
    public static final class Program {
        private Program() {}

        /**
         * Runs the program.
         *
         * @param arguments none
         */
        public static void main(String[] arguments) {
            StoreSpec spec =
                    StoreSpec.documents("s", KeyType.INT64)
                            .partitions(1)
                            .field("s", FieldType.STRING);
            Write row = Write.row(Key.of(7)).set("s", "found");
            try (InMemoryReader reader = ForebayReader.inMemory(spec, row)) {
                byte[] out = new byte[5];
                SegmentReads.of(reader)
                        .getBytes(reader.field("s"), 7, MemorySegment.ofArray(out));
                String text = new String(out, StandardCharsets.UTF_8);
                System.out.println(Forebay.nativeInfo().crossing() + ": " + text);
            }
        }
    }

    private static Path origin(Class<?> type) throws URISyntaxException {
        return Path.of(type.getProtectionDomain().getCodeSource().getLocation().toURI());
    }

    /** Runs the program with the two artifacts on the class path or the module path. */
    private static String run(Path folder, String on, String... options) throws Exception {
        Path err = folder.resolve("err");
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(List.of(options));
        command.add("-Xcheck:jni");
        // Otherwise SLF4J reports the missing provider.
        command.add("-Dslf4j.internal.verbosity=ERROR");
        List<String> path = new ArrayList<>();
        for (Class<?> type : List.of(Forebay.class, SegmentReads.class, Logger.class)) {
            path.add(origin(type).toString());
        }
        String tests = origin(CrossingTest.class).toString();
        String jars = String.join(File.pathSeparator, path);
        if (on.equals("modules")) {
            command.addAll(List.of("-p", jars, "--add-modules", "ALL-MODULE-PATH"));
            command.add("--enable-native-access=io.forebay.client,io.forebay.segments");
            command.addAll(List.of("--patch-module", "io.forebay.segments=" + tests));
            command.addAll(List.of("-m", "io.forebay.segments/" + Program.class.getName()));
        } else {
            command.add("--enable-native-access=ALL-UNNAMED");
            command.addAll(List.of("-cp", jars + File.pathSeparator + tests));
            command.add(Program.class.getName());
        }
        Process program = new ProcessBuilder(command).redirectError(err.toFile()).start();
        byte[] out = program.getInputStream().readAllBytes();
        int code = program.waitFor();
        assertEquals("", Files.readString(err));
        assertEquals(0, code);
        return new String(out, StandardCharsets.UTF_8).trim();
    }

    @Test
    void testsRunOnTheJars() throws Exception {
        assertTrue(origin(SegmentReads.class).toString().endsWith(".jar"));
        assertTrue(origin(Forebay.class).toString().endsWith(".jar"));
    }

    @Test
    void segmentReadsWorkWithEitherCrossing(@TempDir Path folder) throws Exception {
        for (String on : List.of("classes", "modules")) {
            assertEquals("foreign functions: found", run(folder, on));
            assertEquals("jni: found", run(folder, on, "-Dforebay.native.crossing=jni"));
        }
    }
}
