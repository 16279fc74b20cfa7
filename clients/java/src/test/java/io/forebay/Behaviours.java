/* Code that the tests of the behaviours share. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.function.UnaryOperator;

/** Stores and readers on the shared node. */
abstract class Behaviours {
    static final Duration PATIENCE = Node.PATIENCE;
    static final ForebayClient CLIENT = Node.client();

    /** A store and a reader of it that is ready. */
    record OpenStore(Store store, ForebayReader reader, String name) implements AutoCloseable {
        Reads after(WriteOutcome outcome) {
            return reader.with(ReadOptions.after(outcome.token(), PATIENCE));
        }

        Reads after(BatchOutcome outcome) {
            return reader.with(ReadOptions.after(outcome.token(), PATIENCE));
        }

        Reads latest() {
            return reader.with(ReadOptions.latest(PATIENCE));
        }

        long number(Reads reads, String field, String key) {
            return reads.getLong(reader.field(field), Key.of(key), -1);
        }

        @Override
        public void close() {
            reader.close();
        }
    }

    static OpenStore open(KeyType keys, int partitions, UnaryOperator<StoreSpec> shape) {
        return open(shape.apply(StoreSpec.documents(Node.name(), keys).partitions(partitions)));
    }

    static OpenStore open(StoreSpec spec) {
        Store store = CLIENT.createStore(spec);
        ForebayReader reader = CLIENT.reader(spec.name());
        reader.awaitReady(PATIENCE);
        return new OpenStore(store, reader, spec.name());
    }

    /** Opens a store of string keys with the integers a and b and the string s. */
    static OpenStore open() {
        return open(
                KeyType.STRING,
                4,
                spec ->
                        spec.field("a", FieldType.INT64)
                                .field("b", FieldType.INT64)
                                .field("s", FieldType.STRING));
    }

    static <E extends ForebayException> E refused(Class<E> type, Runnable call) {
        E error = assertThrows(type, call::run);
        assertTrue(error.getMessage().startsWith(error.code().label() + ": "));
        return error;
    }

    static InvalidArgumentException invalid(Runnable call) {
        return refused(InvalidArgumentException.class, call);
    }

    static void limited(long limit, long actual, Runnable call) {
        LimitExceededException error = refused(LimitExceededException.class, call);
        assertTrue(error.limit().orElseThrow() == limit, error.getMessage());
        assertTrue(error.actual().orElseThrow() == actual, error.getMessage());
    }
}
