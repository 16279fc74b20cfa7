/* Real nodes for tests: one that all tests share, and others that a test may kill and freeze. */
package io.forebay;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;

/** A {@code forebayd dev} process with its own data directory. */
final class Node implements AutoCloseable {
    /** The bound of every wait of a test. */
    static final Duration PATIENCE = Duration.ofSeconds(60);

    private static final AtomicInteger STORES = new AtomicInteger();

    private final Path data;
    private final int port;
    private final boolean keepsSnapshots;
    private Process process;
    private String address;

    /** Holder of the node that most tests share; the first use starts it. */
    private static final class SharedNode {
        static final Node NODE = new Node(0, false);
        static final ForebayClient CLIENT = NODE.connect();
    }

    private Node(int port, boolean keepsSnapshots) {
        try {
            this.port = port;
            this.keepsSnapshots = keepsSnapshots;
            this.data = Files.createTempDirectory("forebay-java");
            start();
            Runtime.getRuntime().addShutdownHook(new Thread(this::close));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Starts a node on a port that stays reserved for it when it is killed. */
    static Node own() {
        return new Node(freePort(), false);
    }

    /** Starts a node that stores snapshots, a new one each second. */
    static Node withSnapshots() {
        return new Node(0, true);
    }

    private static int freePort() {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    static ForebayClient client() {
        return SharedNode.CLIENT;
    }

    static String sharedAddress() {
        return SharedNode.NODE.address;
    }

    /** Returns a name that no other test has. */
    static String name() {
        return "store-" + STORES.incrementAndGet();
    }

    /** Waits until a condition holds. */
    static void eventually(String what, BooleanSupplier isSo) {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (!isSo.getAsBoolean()) {
            if (System.nanoTime() > end) {
                throw new AssertionError("not so in time: " + what);
            }
            try {
                Thread.sleep(10);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    ForebayClient connect() {
        return ForebayClient.connect(address, PATIENCE);
    }

    String address() {
        return address;
    }

    /** Returns the node's folder, which is deleted with the node. */
    Path folder() {
        return data;
    }

    /** Returns the URL of the node's snapshots. */
    String snapshots() {
        return "file://" + data.resolve("snapshots");
    }

    void start() {
        try {
            Path log = data.resolve("forebayd.log");
            String program = System.getProperty("forebay.program");
            ProcessBuilder builder = new ProcessBuilder(program, "dev");
            builder.command().add("--listen=127.0.0.1:" + port);
            builder.command().add("--data-dir=" + data.resolve("log"));
            if (keepsSnapshots) {
                builder.command().add("--snapshots=" + snapshots());
                builder.command().add("--snapshot-interval=1s");
            }
            builder.redirectError(ProcessBuilder.Redirect.appendTo(log.toFile()));
            process = builder.start();
            InputStreamReader out =
                    new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8);
            String ready = new BufferedReader(out).readLine();
            if (ready == null || !ready.startsWith("forebayd ready ")) {
                String fix = "; fix: cargo build --workspace";
                throw new IllegalStateException("no node: " + Files.readString(log) + fix);
            }
            address = ready.substring("forebayd ready ".length()).trim();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Runs a command of forebayd against the node. */
    void run(String... command) {
        try {
            ProcessBuilder builder = new ProcessBuilder(System.getProperty("forebay.program"));
            builder.command().addAll(List.of(command));
            builder.command().add("--node=" + address);
            Path said = data.resolve("command.log");
            builder.redirectErrorStream(true).redirectOutput(said.toFile());
            Process running = builder.start();
            boolean hasEnded = running.waitFor(PATIENCE.toSeconds(), TimeUnit.SECONDS);
            running.destroyForcibly().waitFor();
            if (!hasEnded || running.exitValue() != 0) {
                throw new AssertionError(List.of(command) + ": " + Files.readString(said));
            }
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /**
     * Stops the process: it receives and sends nothing more until it is killed. Waits until all
     * threads are stopped, because on a busy machine some of them run on for a moment.
     */
    void freeze() {
        try {
            String pid = Long.toString(process.pid());
            new ProcessBuilder("kill", "-STOP", pid).inheritIO().start().waitFor();
            long until = System.nanoTime() + PATIENCE.toNanos();
            while (!stands(Path.of("/proc", pid, "task"))) {
                if (System.nanoTime() > until) {
                    throw new IllegalStateException("the node does not stop");
                }
                Thread.sleep(1);
            }
        } catch (IOException | InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Returns whether each of these threads is stopped. */
    private static boolean stands(Path threads) throws IOException {
        try (var all = Files.list(threads)) {
            for (Path thread : all.toList()) {
                String stat = Files.readString(thread.resolve("stat"));
                // The state follows the name, which may contain anything.
                if (!stat.substring(stat.lastIndexOf(')')).startsWith(") T")) {
                    return false;
                }
            }
            return true;
        } catch (NoSuchFileException ended) {
            // A thread that ends does not count as stopped.
            return false;
        }
    }

    /** Kills the process as kill -9 does. */
    void kill() {
        try {
            process.destroyForcibly().waitFor();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void close() {
        kill();
        try (var files = Files.walk(data)) {
            files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        } catch (IOException error) {
            // An earlier close deleted the folder.
        }
    }
}
