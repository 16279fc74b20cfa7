/* Data of the benchmarks: a store of a real node, and an embedded reader that follows it. */
package io.forebay.bench;

import io.forebay.Batch;
import io.forebay.FieldHandle;
import io.forebay.FieldType;
import io.forebay.ForebayClient;
import io.forebay.ForebayReader;
import io.forebay.GatherField;
import io.forebay.GatherPlan;
import io.forebay.Key;
import io.forebay.KeyType;
import io.forebay.Keys;
import io.forebay.Store;
import io.forebay.StoreSpec;
import io.forebay.Token;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Random;
import org.openjdk.jmh.annotations.Level;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;

/** Created once per trial; every thread reads it. */
@State(Scope.Benchmark)
public class Data {
    /** Keys of one batch. */
    static final int BATCH = 100;

    /** The columns of the matrix; the first holds the document's number. */
    static final List<String> GATHERED = List.of("number", "visits", "score", "price");

    /** Number of single keys and of batches that the reads cycle through: powers of two. */
    static final int SINGLES = 4_096;

    static final int BATCHES = 64;

    private static final int PARTITIONS = 4;
    private static final int LINE_BYTES = 64;
    private static final int WRITTEN_TOGETHER = 1_000;
    private static final Duration PATIENCE = Duration.ofSeconds(60);

    /** Arbitrary seed: each run reads the same keys. */
    private static final long SEED = 41;

    /** Documents of the store. */
    @Param("100000")
    public int documents;

    /** Numbers of the documents to read, in the order of their keys. */
    final long[] numbers = new long[SINGLES];

    final Key[] keys = new Key[SINGLES];
    final long[][] batchNumbers = new long[BATCHES][BATCH];
    final Keys[] batches = new Keys[BATCHES];

    private Node node;
    private ForebayClient client;
    private Store store;
    private ForebayReader reader;
    private FieldHandle number;
    private FieldHandle line;
    private GatherPlan plan;

    /**
     * Starts a node, writes the documents and waits until the reader has applied them.
     *
     * @throws IOException if there is no node to start
     */
    @Setup(Level.Trial)
    public void open() throws IOException {
        node = Node.start();
        client = ForebayClient.connect(node.address(), PATIENCE);
        store =
                client.createStore(
                        StoreSpec.documents("read", KeyType.INT64)
                                .partitions(PARTITIONS)
                                .field("number", FieldType.INT64)
                                .field("visits", FieldType.INT64)
                                .field("score", FieldType.FLOAT64)
                                .field("price", FieldType.FLOAT32)
                                .field("line", FieldType.BYTES));
        reader = client.reader("read");
        reader.awaitReady(PATIENCE);
        for (long first = 0; first < documents; first += WRITTEN_TOGETHER) {
            reader.awaitToken(write(first), PATIENCE);
        }
        number = reader.field("number", FieldType.INT64);
        line = reader.field("line", FieldType.BYTES);
        // Numbers of documents are below 2^53, so a double holds them exactly.
        plan = reader.planGatherDoubles(GATHERED.stream().map(GatherField::new).toList(), true);
        choose();
    }

    private Token write(long first) {
        Batch batch = store.batch();
        for (long next = first; next < Math.min(documents, first + WRITTEN_TOGETHER); next++) {
            batch.add(
                    store.put(Key.of(next))
                            .set("number", next)
                            .set("visits", next % 7)
                            .set("score", next / 2.0)
                            .set("price", next % 100 / 4.0f)
                            .set("line", line(next)));
        }
        return batch.send().requireComplete().token();
    }

    /** Returns the bytes of a document, which begin with its number. */
    private static byte[] line(long number) {
        return ByteBuffer.allocate(LINE_BYTES).putLong(0, number).array();
    }

    private void choose() {
        Random random = new Random(SEED);
        for (int place = 0; place < SINGLES; place++) {
            numbers[place] = random.nextInt(documents);
            keys[place] = Key.of(numbers[place]);
        }
        for (int batch = 0; batch < BATCHES; batch++) {
            Key[] asked = new Key[BATCH];
            for (int place = 0; place < BATCH; place++) {
                batchNumbers[batch][place] = random.nextInt(documents);
                asked[place] = Key.of(batchNumbers[batch][place]);
            }
            batches[batch] = Keys.of(asked);
        }
    }

    /** Removes a document, and waits until the reader has applied the removal. */
    void delete(Key key) {
        reader.awaitToken(store.delete(key).send().token(), PATIENCE);
    }

    ForebayReader reader() {
        return reader;
    }

    FieldHandle number() {
        return number;
    }

    FieldHandle line() {
        return line;
    }

    GatherPlan plan() {
        return plan;
    }

    /** Closes the reader and ends the node. */
    @TearDown(Level.Trial)
    public void close() {
        plan.close();
        reader.close();
        client.close();
        node.close();
    }
}
