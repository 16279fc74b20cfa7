/* A real node in a separate process, with its own data directory. */
package io.forebay.bench;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;

/** A {@code forebayd dev} process; close kills it and removes its data. */
final class Node implements AutoCloseable {
    private static final String READY = "forebayd ready ";

    private final Path data;
    private final Process process;
    private final String address;

    private Node(Path data, Process process, String address) {
        this.data = data;
        this.process = process;
        this.address = address;
    }

    /** Starts the program that {@code -Dforebay.program} names, and waits until it is ready. */
    static Node start() throws IOException {
        String program = System.getProperty("forebay.program");
        if (program == null) {
            throw new IllegalStateException(
                    "the node's program is not set; fix: -Dforebay.program=PATH/TO/forebayd");
        }
        Path data = Files.createTempDirectory("forebay-jmh");
        String folder = "--data-dir=" + data.resolve("log");
        List<String> command = List.of(program, "dev", "--listen=127.0.0.1:0", folder);
        ProcessBuilder builder = new ProcessBuilder(command);
        builder.redirectError(data.resolve("forebayd.log").toFile());
        Process process = builder.start();
        InputStreamReader out =
                new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8);
        String said = new BufferedReader(out).readLine();
        boolean isReady = said != null && said.startsWith(READY);
        String address = isReady ? said.substring(READY.length()).trim() : "";
        Node node = new Node(data, process, address);
        Runtime.getRuntime().addShutdownHook(new Thread(node::close));
        if (!isReady) {
            String log = Files.readString(data.resolve("forebayd.log"));
            node.close();
            throw new IllegalStateException(program + " did not get ready: " + log);
        }
        return node;
    }

    String address() {
        return address;
    }

    @Override
    public void close() {
        try {
            process.destroyForcibly().waitFor();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
        try (Stream<Path> files = Files.walk(data)) {
            files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
        } catch (IOException error) {
            // An earlier close has removed the file.
        }
    }
}
