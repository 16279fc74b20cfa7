/* A store as its creator asks for it. */
package io.forebay;

import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A store to be.
 *
 * @param name its name
 * @param keyType the type of its primary key
 * @param partitions its number of partitions, for ever
 * @param partitionKey the field that partitions it, or null for the primary key
 * @param fields its fields
 * @param options its options
 * @param isKeyValue whether it holds one bytes field named {@code value} and nothing else
 * @param isStream whether it is a stream of events, whose columns the fields are
 * @param eventTime a stream's column that says when an event happened, or null
 */
public record StoreSpec(
        String name,
        KeyType keyType,
        int partitions,
        @Nullable String partitionKey,
        List<FieldSpec> fields,
        StoreOptions options,
        boolean isKeyValue,
        boolean isStream,
        @Nullable String eventTime) {
    private static final int BYTES = 80 + StoreOptions.BYTES;

    private static StoreSpec of(
            String name, KeyType keyType, int partitions, boolean isKeyValue, boolean isStream) {
        StoreOptions options = StoreOptions.DEFAULT;
        return new StoreSpec(
                name, keyType, partitions, null, List.of(), options, isKeyValue, isStream, null);
    }

    /**
     * A document store without fields yet.
     *
     * @param name its name
     * @param keyType the type of its primary key
     * @param partitions its number of partitions
     * @return the store to be
     */
    public static StoreSpec documents(String name, KeyType keyType, int partitions) {
        return of(name, keyType, partitions, false, false);
    }

    /**
     * A key-value store.
     *
     * @param name its name
     * @param keyType the type of its keys
     * @param partitions its number of partitions
     * @return the store to be
     */
    public static StoreSpec keyValue(String name, KeyType keyType, int partitions) {
        return of(name, keyType, partitions, true, false);
    }

    /**
     * A stream of events without columns yet. An event's key says which partition it goes to; any
     * number of events have one key.
     *
     * @param name its name
     * @param keyType the type of its keys
     * @param partitions its number of partitions
     * @return the stream to be
     */
    public static StoreSpec stream(String name, KeyType keyType, int partitions) {
        return of(name, keyType, partitions, false, true);
    }

    /**
     * The same store with one more field.
     *
     * @param field the field
     * @return the store to be
     */
    public StoreSpec field(FieldSpec field) {
        List<FieldSpec> more = new ArrayList<>(fields);
        more.add(field);
        return new StoreSpec(
                name,
                keyType,
                partitions,
                partitionKey,
                List.copyOf(more),
                options,
                isKeyValue,
                isStream,
                eventTime);
    }

    /**
     * The same store with one more field.
     *
     * @param field the field's name
     * @param type its type
     * @return the store to be
     */
    public StoreSpec field(String field, FieldType type) {
        return field(new FieldSpec(field, type));
    }

    /**
     * The same store, partitioned by a field.
     *
     * @param field the field's name; every write and read carries its value
     * @return the store to be
     */
    public StoreSpec partitionedBy(String field) {
        return new StoreSpec(
                name, keyType, partitions, field, fields, options, isKeyValue, isStream, eventTime);
    }

    /**
     * The same stream, with the time of its events in a column. Without it, and where an event has
     * no value of it, an event happened when the log took it.
     *
     * @param column the name of a timestamp column
     * @return the stream to be
     */
    public StoreSpec happeningAt(String column) {
        return new StoreSpec(
                name,
                keyType,
                partitions,
                partitionKey,
                fields,
                options,
                isKeyValue,
                isStream,
                column);
    }

    /**
     * The same store with other options.
     *
     * @param other the options
     * @return the store to be
     */
    public StoreSpec with(StoreOptions other) {
        return new StoreSpec(
                name,
                keyType,
                partitions,
                partitionKey,
                fields,
                other,
                isKeyValue,
                isStream,
                eventTime);
    }

    long encode(CallBuffer call) {
        CallBuffer.Place spec = call.allocate(BYTES);
        CallBuffer.Place places = call.allocate((long) FieldSpec.BYTES * fields.size());
        call.text(spec.buffer(), spec.at(), name);
        spec.buffer().putInt(spec.at() + 16, keyType.code());
        spec.buffer().putInt(spec.at() + 20, partitions);
        call.text(spec.buffer(), spec.at() + 24, partitionKey == null ? "" : partitionKey);
        spec.buffer().putLong(spec.at() + 40, places.address());
        spec.buffer().putLong(spec.at() + 48, fields.size());
        options.encode(spec.buffer(), spec.at() + 56);
        spec.buffer().putInt(spec.at() + 56 + StoreOptions.BYTES, isKeyValue ? 1 : 0);
        spec.buffer().putInt(spec.at() + 60 + StoreOptions.BYTES, isStream ? 1 : 0);
        call.text(
                spec.buffer(),
                spec.at() + 64 + StoreOptions.BYTES,
                eventTime == null ? "" : eventTime);
        int at = places.at();
        for (FieldSpec field : fields) {
            field.encode(call, places.buffer(), at);
            at += FieldSpec.BYTES;
        }
        return spec.address();
    }
}
