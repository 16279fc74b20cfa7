/* Specifications of stores. */
package io.forebay;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
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

    private StoreSpec(Builder builder) {
        name = builder.name;
        keyType = builder.keyType;
        partitions = builder.partitions;
        partitionKey = builder.partitionKey;
        fields = builder.fields;
        options = builder.options;
        isKeyValue = builder.isKeyValue;
        isStream = builder.isStream;
        eventTime = builder.eventTime;
    }

    /** The properties of a store specification before it is created. */
    private static final class Builder {
        private final String name;
        private final KeyType keyType;
        private final int partitions;
        private @Nullable String partitionKey;
        private List<FieldSpec> fields = List.of();
        private StoreOptions options = StoreOptions.DEFAULT;
        private boolean isKeyValue;
        private boolean isStream;
        private @Nullable String eventTime;

        private Builder(String name, KeyType keyType, int partitions) {
            this.name = name;
            this.keyType = keyType;
            this.partitions = partitions;
        }
    }

    /** Returns the same specification with a change of its properties. */
    private StoreSpec with(Consumer<Builder> change) {
        Builder builder = new Builder(name, keyType, partitions);
        builder.partitionKey = partitionKey;
        builder.fields = fields;
        builder.options = options;
        builder.isKeyValue = isKeyValue;
        builder.isStream = isStream;
        builder.eventTime = eventTime;
        change.accept(builder);
        return new StoreSpec(builder);
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
        return new StoreSpec(new Builder(name, keyType, partitions));
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
        return documents(name, keyType, partitions).with(builder -> builder.isKeyValue = true);
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
        return documents(name, keyType, partitions).with(builder -> builder.isStream = true);
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
        List<FieldSpec> copy = List.copyOf(more);
        return with(builder -> builder.fields = copy);
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
        return with(builder -> builder.partitionKey = field);
    }

    /**
     * Returns the same stream with the event time in a column. If there is no such column, or no
     * value in it, an event happens when the log appends it.
     *
     * @param column the name of a timestamp column
     * @return the stream specification
     */
    public StoreSpec eventTime(String column) {
        return with(builder -> builder.eventTime = column);
    }

    /**
     * Returns the same specification with other options.
     *
     * @param other the options
     * @return the store specification
     */
    public StoreSpec options(StoreOptions other) {
        return with(builder -> builder.options = other);
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
