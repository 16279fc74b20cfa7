/* The jar alone contains the library, and the calls for the Java that runs it. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.net.URISyntaxException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.jar.JarFile;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.slf4j.Logger;

class PackagedJarTest {
    private static final int FEATURE = Runtime.version().feature();

    /**
     * The program that runs on the jar: it writes, reads, and prints how it calls the native core.
     */
    public static final class Program {
        private Program() {}

        /**
         * Runs the program.
         *
         * @param arguments the address of a node, and the name of a new store
         */
        public static void main(String[] arguments) {
            try (ForebayClient client = ForebayClient.connect(arguments[0])) {
                StoreSpec spec = StoreSpec.documents(arguments[1], KeyType.INT64).partitions(2);
                Store store = client.createStore(spec.field("a", FieldType.INT64));
                WriteOutcome written = store.upsert(Key.of(7)).set("a", 41).send();
                try (ForebayReader reader = client.reader(arguments[1])) {
                    reader.awaitReady(Node.PATIENCE);
                    Reads reads = reader.with(ReadOptions.after(written.token(), Node.PATIENCE));
                    long found = reads.getLong(reader.field("a"), Key.of(7), -1);
                    String crossing = Native.CALLS.getClass().getSimpleName();
                    System.out.println(crossing + " " + found);
                }
            }
        }
    }

    private static Path origin(Class<?> type) throws URISyntaxException {
        return Path.of(type.getProtectionDomain().getCodeSource().getLocation().toURI());
    }

    private static String run(Path folder, String... options) throws Exception {
        Path err = folder.resolve("err");
        Process program = start(err, options);
        byte[] out = program.getInputStream().readAllBytes();
        int code = program.waitFor();
        assertEquals("", Files.readString(err));
        assertEquals(0, code);
        return new String(out, StandardCharsets.UTF_8).trim();
    }

    private static Process start(Path err, String... options) throws Exception {
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(List.of(options));
        if (FEATURE >= 22) {
            command.add("--enable-native-access=ALL-UNNAMED");
        }
        // Otherwise SLF4J reports the missing provider.
        command.add("-Dslf4j.internal.verbosity=ERROR");
        List<String> path = new ArrayList<>();
        for (Class<?> type :
                List.of(ForebayClient.class, Logger.class, PackagedJarTest.class)) {
            path.add(origin(type).toString());
        }
        command.addAll(List.of("-cp", String.join(File.pathSeparator, path)));
        command.addAll(List.of(Program.class.getName(), Node.sharedAddress(), Node.name()));
        return new ProcessBuilder(command).redirectError(err.toFile()).start();
    }

    /** Returns the error of a program that cannot load its library. */
    private static String failure(Path folder, String... options) throws Exception {
        Path err = folder.resolve("err");
        Process program = start(err, options);
        program.getInputStream().readAllBytes();
        assertEquals(1, program.waitFor());
        return Files.readString(err);
    }

    private static boolean hasForeignCalls() throws IOException, URISyntaxException {
        try (JarFile jar = new JarFile(origin(ForebayClient.class).toFile())) {
            return jar.getEntry("META-INF/versions/22/io/forebay/ForeignCalls.class") != null;
        }
    }

    private static String expectedCrossing() throws IOException, URISyntaxException {
        return FEATURE >= 22 && hasForeignCalls() ? "ForeignCalls" : "JniCalls";
    }

    @Test
    void testsRunOnTheJarWithTheBestCrossingOfTheirJdk() throws Exception {
        assertTrue(origin(ForebayClient.class).toString().endsWith(".jar"));
        assertEquals(expectedCrossing(), Native.CALLS.getClass().getSimpleName());
    }

    @Test
    void programNeedsOnlyTheJarAndPrintsNothingElse(@TempDir Path folder) throws Exception {
        assertEquals(expectedCrossing() + " 41", run(folder));
    }

    @Test
    void unloadableLibraryIsNamedWithItsCause(@TempDir Path folder) throws Exception {
        String machine = failure(folder, "-Dos.arch=riscv64");
        assertTrue(machine.contains("linux-riscv64"), machine);
        assertTrue(machine.contains("no library for this system and architecture"), machine);
        // A library of another machine: ELF, 64 bits, of a foreign architecture.
        byte[] header = new byte[64];
        byte[] start = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, (byte) 0xf3};
        System.arraycopy(start, 0, header, 0, start.length);
        Path other = Files.write(folder.resolve("libother.so"), header);
        String refused = failure(folder, "-Dforebay.native.path=" + other);
        assertTrue(refused.contains(other + " cannot be loaded on linux-amd64 ("), refused);
        assertTrue(refused.contains("it needs this architecture, and a libc"), refused);
    }

    @Test
    void libraryThatNeedsANewerLibcNamesTheLibc(@TempDir Path folder) throws Exception {
        // A copy of the library that requires a libc version that does not exist.
        String place = "/io/forebay/native/linux-amd64/libforebay_ffi.so";
        Path newer = folder.resolve("libnewer.so");
        try (InputStream packed = ForebayClient.class.getResourceAsStream(place)) {
            String bytes = new String(packed.readAllBytes(), StandardCharsets.ISO_8859_1);
            Matcher wanted = Pattern.compile("\0GLIBC_2(\\.\\d\\d\0)").matcher(bytes);
            Files.write(
                    newer,
                    wanted.replaceFirst("\0GLIBC_9$1").getBytes(StandardCharsets.ISO_8859_1));
        }
        String refused = failure(folder, "-Dforebay.native.path=" + newer);
        assertTrue(refused.contains(newer + " cannot be loaded on linux-amd64 ("), refused);
        assertTrue(refused.contains("GLIBC_9."), refused);
        assertTrue(refused.contains("a libc that is no older"), refused);
    }

    @Test
    void libraryOfAnotherReleaseIsNamedWithBothVersions() {
        Native.requireVersion(NativeCalls.VERSION);
        UpgradeNeededException refused =
                assertThrows(
                        UpgradeNeededException.class,
                        () -> Native.requireVersion(NativeCalls.VERSION - 1));
        String message = refused.getMessage();
        assertTrue(message.contains("speaks ABI " + (NativeCalls.VERSION - 1)), message);
        assertTrue(message.contains("this package " + NativeCalls.VERSION), message);
        assertTrue(message.contains("libforebay_ffi.so"), message);
    }

    @Test
    void jniCanBeRequested(@TempDir Path folder) throws Exception {
        assertEquals("JniCalls 41", run(folder, "-Dforebay.native.crossing=jni"));
    }
}
