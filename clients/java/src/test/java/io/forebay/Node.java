/* The one real {@code forebayd} of a test run. */
package io.forebay;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** Starts {@code forebayd dev} once per virtual machine and stops it with it. */
final class Node {
    static final Duration PATIENCE = Duration.ofSeconds(60);

    private static final AtomicInteger STORES = new AtomicInteger();
    private static final String ADDRESS = start();

    private Node() {}

    static String address() {
        return ADDRESS;
    }

    static ForebayClient client() {
        return ForebayClient.connect(ADDRESS, PATIENCE);
    }

    /** A name that no other test has. */
    static String name(String what) {
        return what + "-" + STORES.incrementAndGet();
    }

    private static String start() {
        try {
            Path target = Path.of(System.getProperty("forebay.target"));
            Path data = Files.createTempDirectory("forebay-java");
            ProcessBuilder builder =
                    new ProcessBuilder(
                            target.resolve("forebayd").toString(),
                            "dev",
                            "--listen",
                            "127.0.0.1:0",
                            "--data-dir",
                            data.toString());
            builder.redirectError(data.resolve("forebayd.log").toFile());
            Process process = builder.start();
            Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(process, data)));
            BufferedReader lines =
                    new BufferedReader(
                            new InputStreamReader(
                                    process.getInputStream(), StandardCharsets.UTF_8));
            String ready = lines.readLine();
            if (ready == null || !ready.startsWith("forebayd ready ")) {
                throw new IllegalStateException(
                        "forebayd did not start: "
                                + Files.readString(data.resolve("forebayd.log"))
                                + "; build it with: cargo build --workspace");
            }
            return ready.substring("forebayd ready ".length()).trim();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static void stop(Process process, Path data) {
        process.destroy();
        try {
            if (!process.waitFor(20, TimeUnit.SECONDS)) {
                process.destroyForcibly().waitFor();
            }
            try (var files = Files.walk(data)) {
                files.sorted(java.util.Comparator.reverseOrder())
                        .forEach(file -> file.toFile().delete());
            }
        } catch (IOException | InterruptedException error) {
            process.destroyForcibly();
        }
    }
}
