/* Specifications of stores. */
package io.forebay;

import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A store specification. Immutable.
 *
 * <pre>{@code
 * StoreSpec users =
 *         StoreSpec.documents("users", KeyType.STRING, 8).field("visits", FieldType.INT64);
 * }</pre>
 */
public final class StoreSpec {
    private static final int BYTES = HeaderConstants.STORE_SPEC_STRUCT_BYTES;

    private final String name;
    private final KeyType keyType;
    private final int partitions;
    private final @Nullable String partitionKey;
    private final List<FieldSpec> fields;
    private final StoreOptions options;
    private final boolean isKeyValue;
    private final boolean isStream;
    private final @Nullable String eventTime;

    private StoreSpec(
            String name,
            KeyType keyType,
            int partitions,
            @Nullable String partitionKey,
            List<FieldSpec> fields,
            StoreOptions options,
            boolean isKeyValue,
            boolean isStream,
            @Nullable String eventTime) {
        this.name = name;
        this.keyType = keyType;
        this.partitions = partitions;
        this.partitionKey = partitionKey;
        this.fields = fields;
        this.options = options;
        this.isKeyValue = isKeyValue;
        this.isStream = isStream;
        this.eventTime = eventTime;
    }

    private static StoreSpec of(
            String name, KeyType keyType, int partitions, boolean isKeyValue, boolean isStream) {
        StoreOptions options = StoreOptions.DEFAULT;
        return new StoreSpec(
                name, keyType, partitions, null, List.of(), options, isKeyValue, isStream, null);
    }

    /**
     * Returns the store's name.
     *
     * @return the name
     */
    public String name() {
        return name;
    }

    /**
     * Specifies a document store without fields yet.
     *
     * @param name the name
     * @param keyType the type of the primary key
     * @param partitions the number of partitions
     * @return the store specification
     */
    public static StoreSpec documents(String name, KeyType keyType, int partitions) {
        return of(name, keyType, partitions, false, false);
    }

    /**
     * Specifies a key-value store.
     *
     * @param name the name
     * @param keyType the type of the keys
     * @param partitions the number of partitions
     * @return the store specification
     */
    public static StoreSpec keyValue(String name, KeyType keyType, int partitions) {
        return of(name, keyType, partitions, true, false);
    }

    /**
     * Specifies a stream of events without columns yet. An event's key selects its partition; any
     * number of events may have the same key.
     *
     * @param name the name
     * @param keyType the type of the keys
     * @param partitions the number of partitions
     * @return the stream specification
     */
    public static StoreSpec stream(String name, KeyType keyType, int partitions) {
        return of(name, keyType, partitions, false, true);
    }

    /**
     * Returns the same specification with one more field.
     *
     * @param field the field
     * @return the store specification
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
     * Returns the same specification with one more field.
     *
     * @param field the field's name
     * @param type the field's type
     * @return the store specification
     */
    public StoreSpec field(String field, FieldType type) {
        return field(FieldSpec.of(field, type));
    }

    /**
     * Returns the same specification, partitioned by a field.
     *
     * @param field the field's name; every write and read carries its value
     * @return the store specification
     */
    public StoreSpec partitionKey(String field) {
        return new StoreSpec(
                name, keyType, partitions, field, fields, options, isKeyValue, isStream, eventTime);
    }

    /**
     * Returns the same stream with the event time in a column. If there is no such column, or no
     * value in it, an event happens when the log appends it.
     *
     * @param column the name of a timestamp column
     * @return the stream specification
     */
    public StoreSpec eventTime(String column) {
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
     * Returns the same specification with other options.
     *
     * @param other the options
     * @return the store specification
     */
    public StoreSpec options(StoreOptions other) {
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
