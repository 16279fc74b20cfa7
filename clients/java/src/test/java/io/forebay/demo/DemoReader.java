/*
 * The demo's Java reader: follows the demo's stores with embedded readers, measures their freshness
 * while the load runs, then reads, ranks and dumps the documents. The messages are those of
 * tools/demo/README.md.
 */
package io.forebay.demo;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import io.forebay.ForebayClient;
import io.forebay.ForebayReader;
import io.forebay.ReaderStatus;
import io.forebay.Token;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;

/** The program. */
public final class DemoReader {
    private static final Duration READY_WAIT = Duration.ofSeconds(30);
    private static final Duration TOKEN_WAIT = Duration.ofSeconds(60);

    private DemoReader() {}

    /** The readers of this process. */
    record Readers(ForebayReader movies, ForebayReader users, ForebayReader probes) {
        static Readers open(ForebayClient client) {
            Readers readers =
                    new Readers(
                            client.reader("movies"),
                            client.reader("users"),
                            client.reader("probes"));
            readers.movies.awaitReady(READY_WAIT);
            readers.users.awaitReady(READY_WAIT);
            readers.probes.awaitReady(READY_WAIT);
            return readers;
        }
    }

    /**
     * Follows the stores of a running {@code forebayd dev}.
     *
     * @param arguments {@code --address http://HOST:PORT --probe-key N}
     * @throws Exception a failure that ends the program early; the demo shows it
     */
    public static void main(String[] arguments) throws Exception {
        long began = System.nanoTime();
        List<String> given = List.of(arguments);
        String address = given.get(given.indexOf("--address") + 1);
        long number = Long.parseLong(given.get(given.indexOf("--probe-key") + 1));
        try (ForebayClient client = ForebayClient.connect(address)) {
            Readers readers = Readers.open(client);
            JsonObject ready = new JsonObject();
            ready.addProperty("language", "java");
            ready.addProperty("seconds", (System.nanoTime() - began) / 1e9);
            say("ready", ready);
            Probe probe = new Probe(client.store("probes"), readers.probes(), number);
            JsonObject finish = probe.untilHeard(listening());
            awaitTokens(readers, finish.getAsJsonObject("tokens"));
            say("figures", figures(readers, finish, probe));
        }
    }

    /** Waits for the demo's only message on a separate thread. */
    private static FutureTask<JsonObject> listening() {
        Callable<JsonObject> hear =
                () -> {
                    InputStreamReader in =
                            new InputStreamReader(System.in, StandardCharsets.UTF_8);
                    String line = new BufferedReader(in).readLine();
                    if (line == null) {
                        throw new EOFException("the demo has gone away");
                    }
                    return JsonParser.parseString(line)
                            .getAsJsonObject()
                            .getAsJsonObject("finish");
                };
        FutureTask<JsonObject> heard = new FutureTask<>(hear);
        Thread thread = new Thread(heard, "hear-finish");
        thread.setDaemon(true);
        thread.start();
        return heard;
    }

    private static void awaitTokens(Readers readers, JsonObject tokens) {
        for (ForebayReader reader : List.of(readers.movies(), readers.users())) {
            byte[] bytes = HexFormat.of().parseHex(tokens.get(reader.store()).getAsString());
            reader.awaitToken(Token.of(bytes), TOKEN_WAIT);
        }
    }

    private static JsonObject figures(Readers readers, JsonObject finish, Probe probe)
            throws IOException {
        JsonObject documents = new JsonObject();
        documents.addProperty("movies", held(readers.movies()));
        documents.addProperty("users", held(readers.users()));
        JsonObject keys = finish.getAsJsonObject("keys");
        Dump movies;
        Dump users;
        Path dump = Path.of(finish.get("dump").getAsString());
        try (BufferedWriter out = Files.newBufferedWriter(dump)) {
            movies = dumped(readers.movies(), keys, out);
            users = dumped(readers.users(), keys, out);
        }
        Ranking ranking = Ranking.of(readers, movies, users);
        JsonObject figures = new JsonObject();
        figures.add("documents", documents);
        figures.add("freshness", probe.figures());
        figures.add("get", Measure.gets(readers.movies(), movies.keys()));
        figures.add("gather", Measure.gathers(readers.movies(), ranking.candidates()));
        figures.addProperty("user", ranking.user());
        figures.add("top", ranking.top());
        return figures;
    }

    private static Dump dumped(ForebayReader reader, JsonObject keys, Writer out)
            throws IOException {
        return Dump.write(reader, Path.of(keys.get(reader.store()).getAsString()), out);
    }

    /** Returns the number of documents that the reader reports. */
    private static long held(ForebayReader reader) {
        return reader.status().partitions().stream()
                .mapToLong(ReaderStatus.PartitionStatus::documents)
                .sum();
    }

    /** Prints one message: a JSON object with one name and its details, in one line. */
    static void say(String kind, JsonObject details) {
        JsonObject message = new JsonObject();
        message.add(kind, details);
        System.out.println(message);
        System.out.flush();
    }
}
