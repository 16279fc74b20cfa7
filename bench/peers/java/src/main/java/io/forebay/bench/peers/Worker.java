/* The worker: holds the data of its role, and answers orders on its standard input. */
package io.forebay.bench.peers;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * {@code Worker SUBJECTS ENTRIES KEY_BYTES VALUE_BYTES FOLDER}: fills each of the subjects, whose
 * names are separated by commas, and then measures each order, such as {@code java get}. The
 * protocol is that of bench/index/src/serve.rs.
 */
public final class Worker {
    private static final int CHUNK = 512;
    private static final int CHUNKS = 200;
    private static final int BATCH = 500;
    private static final int BATCHES = 300;
    private static final int SINGLES = 100_000;
    private static final int WARM = 3;
    /**
     * First bound of a histogram, as in the Rust workers: two parts to each power of two from here
     * on.
     */
    private static final long HISTOGRAM_FIRST_NANOS = 32;
    private static final int HISTOGRAM_PARTS = 40;

    private final Data data;
    private final Path folder;
    private final Map<String, Subject> subjects = new LinkedHashMap<>();
    private final Map<String, Long> places = new LinkedHashMap<>();
    private final PrintStream answers;
    private Line line;

    private Worker(Data data, Path folder, PrintStream answers) {
        this.data = data;
        this.folder = folder;
        this.answers = answers;
    }

    /**
     * Runs the worker.
     *
     * @param arguments as above
     * @throws Exception if a subject cannot be filled
     */
    public static void main(String[] arguments) throws Exception {
        Data.check();
        long entries = Long.parseLong(arguments[1]);
        int keyBytes = Integer.parseInt(arguments[2]);
        Data data = new Data(entries, keyBytes, Integer.parseInt(arguments[3]));
        // Libraries print to the standard output; redirect them to the errors.
        PrintStream answers = System.out;
        System.setOut(System.err);
        Worker worker = new Worker(data, Path.of(arguments[4]), answers);
        for (String name : arguments[0].split(",")) {
            worker.fill(name);
        }
        worker.serve();
    }

    private void fill(String name) throws Exception {
        Subject subject =
                switch (name) {
                    case "java", "java17" -> ForebaySubject.inMemory(data);
                    case "java-files", "java17-files" -> ForebaySubject.overFiles(data);
                    case "chm" -> new Concurrent(data);
                    case "chronicle" -> new Chronicle(data);
                    case "hollow" -> new Hollow(data);
                    case "rocksdb" -> new Rocks(data, folder.resolve("rocks"));
                    case "redis" -> new Redis(data, folder.resolve("redis.sock"));
                    default -> null;
                };
        if (subject != null) {
            subjects.put(name, subject);
        }
        if (subject instanceof ForebaySubject ours && ours.isInMemory()) {
            line = new Line();
        }
    }

    /** Lets the compiler see all code before the measurements. */
    private void warm() throws Exception {
        for (int time = 0; time < WARM; time++) {
            for (Map.Entry<String, Subject> each : subjects.entrySet()) {
                String name = each.getKey();
                get(name, each.getValue());
                many(name, each.getValue(), BATCH, Form.LOOP);
                if (each.getValue() instanceof Subject.BatchSubject) {
                    many(name, each.getValue(), BATCH, Form.BATCH);
                }
                if (each.getValue() instanceof ForebaySubject) {
                    many(name, each.getValue(), BATCH, Form.ARRAYS);
                    singles(name, each.getValue(), new LinkedHashMap<>());
                    batches(name, each.getValue(), new LinkedHashMap<>());
                }
            }
        }
    }

    private void serve() throws Exception {
        warm();
        System.gc();
        say("ready", about());
        BufferedReader orders =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            if (!order.startsWith("run ")) {
                break;
            }
            try {
                say("done", run(order.substring(4)));
            } catch (Exception | LinkageError error) {
                answers.println("failed " + String.valueOf(error).replace('\n', ' '));
                answers.flush();
            }
        }
        System.exit(0);
    }

    private Map<String, Double> about() throws IOException {
        Map<String, Double> about = new LinkedHashMap<>();
        about.put("entries", (double) data.entries());
        about.put("java", (double) Runtime.version().feature());
        if (line != null) {
            double foreign = ForebaySubject.crossing().equals("foreign functions") ? 1 : 0;
            about.put("by foreign functions", foreign);
            about.put("lines of D, MB", line.megabytes());
        }
        long resident = 0;
        long huge = 0;
        for (String field : Files.readAllLines(Path.of("/proc/self/smaps_rollup"))) {
            String[] words = field.split("\\s+");
            if (words[0].equals("Rss:")) {
                resident = Long.parseLong(words[1]);
            } else if (words[0].equals("AnonHugePages:")) {
                huge = Long.parseLong(words[1]);
            }
        }
        about.put("resident MB", resident / 1e3);
        about.put("in huge pages, %", 100.0 * huge / Math.max(1, resident));
        return about;
    }

    private void say(String kind, Map<String, Double> values) {
        List<String> fields = new ArrayList<>();
        values.forEach(
                (name, value) -> fields.add(String.format(Locale.ROOT, "\"%s\":%f", name, value)));
        answers.println(kind + " {" + String.join(",", fields) + "}");
        answers.flush();
    }

    private Map<String, Double> run(String order) throws Exception {
        Map<String, Double> values = new LinkedHashMap<>();
        if (order.equals("java D")) {
            values.put(order, line.measure());
            return values;
        }
        if (order.equals("chronicle bytes")) {
            double bytes = Chronicle.bytesPerSmallEntry(data.entries());
            values.put("chronicle 4 + 32 B, all bytes", bytes);
            return values;
        }
        int space = order.indexOf(' ');
        String name = order.substring(0, space);
        String what = order.substring(space + 1);
        Subject subject = subjects.get(name);
        if (subject == null) {
            throw new IllegalArgumentException("there is no " + name + " here");
        }
        switch (what) {
            case "get" -> values.put(order, get(name, subject));
            case "singles" -> singles(name, subject, values);
            case "batches" -> batches(name, subject, values);
            case "loop 500" -> values.put(order, many(name, subject, BATCH, Form.LOOP)[0] / BATCH);
            case "batch 500" ->
                    values.put(order, many(name, subject, BATCH, Form.BATCH)[0] / BATCH);
            case "arrays 500" ->
                    values.put(order, many(name, subject, BATCH, Form.ARRAYS)[0] / BATCH);
            default -> throw new IllegalArgumentException("there is no order " + order);
        }
        return values;
    }

    /** Returns the gets of one round: few for a subject in another process. */
    private static int chunks(String name) {
        return name.equals("redis") ? 10 : CHUNKS;
    }

    private double get(String name, Subject subject) throws Exception {
        long place = places.getOrDefault(name, 0L);
        byte[] key = data.key(place);
        long[] times = new long[chunks(name)];
        for (int chunk = 0; chunk < times.length; chunk++) {
            long began = System.nanoTime();
            subject.chain(key, CHUNK);
            times[chunk] = System.nanoTime() - began;
        }
        check(name, place, (long) CHUNK * times.length, key);
        Arrays.sort(times);
        return times[times.length / 2] / (double) CHUNK;
    }

    private void check(String name, long from, long steps, byte[] key) {
        long expected = data.after(from, steps);
        if (data.number(key) != expected) {
            throw new IllegalStateException(name + ": a chain ended at " + data.number(key));
        }
        places.put(name, expected);
    }

    private void singles(String name, Subject subject, Map<String, Double> values)
            throws Exception {
        long place = places.getOrDefault(name, 0L);
        byte[] key = data.key(place);
        long[] times = new long[SINGLES];
        long before = System.nanoTime();
        for (int single = 0; single < SINGLES; single++) {
            subject.chain(key, 1);
            long now = System.nanoTime();
            times[single] = now - before;
            before = now;
        }
        check(name, place, SINGLES, key);
        percentiles(name + " get", times, values);
    }

    private static void percentiles(String name, long[] times, Map<String, Double> values) {
        Arrays.sort(times);
        double[] quantiles = {0.5, 0.9, 0.99, 0.999, 1.0};
        String[] labels = {"p50", "p90", "p99", "p99.9", "max"};
        for (int at = 0; at < labels.length; at++) {
            int place = (int) Math.ceil(quantiles[at] * times.length) - 1;
            values.put(name + " " + labels[at], (double) times[Math.max(0, place)]);
        }
        histogram(name, times, values);
    }

    /** Computes the percentages of sorted times in parts that end at powers of two and half way. */
    private static void histogram(String name, long[] times, Map<String, Double> values) {
        int counted = 0;
        for (int half = 0; half < HISTOGRAM_PARTS; half++) {
            long power = HISTOGRAM_FIRST_NANOS << half / 2;
            long end = half % 2 == 0 ? power : power + power / 2;
            int before = counted;
            boolean isLast = half == HISTOGRAM_PARTS - 1;
            while (counted < times.length && (isLast || times[counted] <= end)) {
                counted++;
            }
            double share = 100.0 * (counted - before) / times.length;
            values.put(name + " histogram to " + end, share);
        }
    }

    private void batches(String name, Subject subject, Map<String, Double> values)
            throws Exception {
        for (int size : new int[] {10, 50, 100, 500}) {
            long[] times = times(name, subject, size, 5_000, Form.BATCH);
            percentiles(name + " batch " + size, times, values);
        }
    }

    private enum Form {
        LOOP,
        BATCH,
        ARRAYS
    }

    private double[] many(String name, Subject subject, int size, Form form) throws Exception {
        int count = name.equals("redis") ? 20 : BATCHES;
        long[] times = times(name, subject, size, count, form);
        Arrays.sort(times);
        return new double[] {times[times.length / 2]};
    }

    private long[] times(String name, Subject subject, int size, int count, Form form)
            throws Exception {
        long place = places.getOrDefault(name, 0L);
        byte[][] keys = new byte[size][];
        byte[][] values = new byte[size][];
        long[] times = new long[count];
        for (int batch = 0; batch < count; batch++) {
            for (int at = 0; at < size; at++) {
                keys[at] = data.key(place);
                place = data.next(place);
            }
            long began = System.nanoTime();
            read(subject, keys, values, form);
            times[batch] = System.nanoTime() - began;
            if (data.number(values[size - 1]) != place) {
                throw new IllegalStateException(name + ": a batch's last value is another's");
            }
        }
        places.put(name, place);
        return times;
    }

    private static void read(Subject subject, byte[][] keys, byte[][] values, Form form)
            throws Exception {
        switch (form) {
            case LOOP -> subject.loop(keys, values);
            case ARRAYS -> ((ForebaySubject) subject).arrays(keys, values);
            default -> ((Subject.BatchSubject) subject).batch(keys, values);
        }
    }
}
