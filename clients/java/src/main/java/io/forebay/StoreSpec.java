/* Specifications of stores. */
package io.forebay;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * A store specification. Immutable. A store has 8 partitions unless set.
 *
 * <pre>{@code
 * StoreSpec users =
 *         StoreSpec.documents("users", KeyType.STRING)
 *                 .partitions(8)
 *                 .field("visits", FieldType.INT64);
 * }</pre>
 */
public final class StoreSpec {
    private static final int BYTES = HeaderConstants.STORE_SPEC_STRUCT_BYTES;
    private static final int DEFAULT_PARTITIONS = 8;

    private final StoreProperties properties;

    private StoreSpec(StoreProperties properties) {
        this.properties = properties;
    }

    /** The properties of a store specification, which change only before it is created. */
    private static final class StoreProperties {
        private final String name;
        private final KeyType keyType;
        private int partitions = DEFAULT_PARTITIONS;
        private @Nullable String partitionKey;
        private List<FieldSpec> fields = List.of();
        private StoreOptions options = StoreOptions.DEFAULT;
        private boolean isKeyValue;
        private boolean isStream;
        private @Nullable String eventTime;

        private StoreProperties(String name, KeyType keyType) {
            this.name = name;
            this.keyType = keyType;
        }

        private StoreProperties(StoreProperties other) {
            this(other.name, other.keyType);
            partitions = other.partitions;
            partitionKey = other.partitionKey;
            fields = other.fields;
            options = other.options;
            isKeyValue = other.isKeyValue;
            isStream = other.isStream;
            eventTime = other.eventTime;
        }
    }

    /** Returns the same specification with a change of its properties. */
    private StoreSpec with(Consumer<StoreProperties> change) {
        StoreProperties changed = new StoreProperties(properties);
        change.accept(changed);
        return new StoreSpec(changed);
    }

    /**
     * Returns the store's name.
     *
     * @return the name
     */
    public String name() {
        return properties.name;
    }

    /**
     * Specifies a document store without fields yet.
     *
     * @param name the name
     * @param keyType the type of the primary key
     * @return the store specification
     */
    public static StoreSpec documents(String name, KeyType keyType) {
        return new StoreSpec(new StoreProperties(name, keyType));
    }

    /**
     * Specifies a key-value store.
     *
     * @param name the name
     * @param keyType the type of the keys
     * @return the store specification
     */
    public static StoreSpec keyValue(String name, KeyType keyType) {
        return documents(name, keyType).with(changed -> changed.isKeyValue = true);
    }

    /**
     * Specifies a stream of events without columns yet. An event's key selects its partition; any
     * number of events may have the same key.
     *
     * @param name the name
     * @param keyType the type of the keys
     * @return the stream specification
     */
    public static StoreSpec stream(String name, KeyType keyType) {
        return documents(name, keyType).with(changed -> changed.isStream = true);
    }

    /**
     * Returns the same specification with another number of partitions.
     *
     * @param count the number of partitions
     * @return the store specification
     */
    public StoreSpec partitions(int count) {
        return with(changed -> changed.partitions = count);
    }

    /**
     * Returns the same specification with one more field.
     *
     * @param field the field
     * @return the store specification
     */
    public StoreSpec field(FieldSpec field) {
        List<FieldSpec> more = new ArrayList<>(properties.fields);
        more.add(field);
        List<FieldSpec> copy = List.copyOf(more);
        return with(changed -> changed.fields = copy);
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
        return with(changed -> changed.partitionKey = field);
    }

    /**
     * Returns the same stream with the event time in a column. If there is no such column, or no
     * value in it, an event happens when the log appends it.
     *
     * @param column the name of a timestamp column
     * @return the stream specification
     */
    public StoreSpec eventTime(String column) {
        return with(changed -> changed.eventTime = column);
    }

    /**
     * Returns the same specification with other options.
     *
     * @param other the options
     * @return the store specification
     */
    public StoreSpec options(StoreOptions other) {
        return with(changed -> changed.options = other);
    }

    long encode(CallBuffer call) {
        CallBuffer.Place spec = call.allocate(BYTES);
        CallBuffer.Place places = call.allocate((long) FieldSpec.BYTES * properties.fields.size());
        call.text(spec.buffer(), spec.at(), properties.name);
        spec.buffer().putInt(spec.at() + 16, properties.keyType.code());
        spec.buffer().putInt(spec.at() + 20, properties.partitions);
        call.text(spec.buffer(), spec.at() + 24, orEmpty(properties.partitionKey));
        spec.buffer().putLong(spec.at() + 40, places.address());
        spec.buffer().putLong(spec.at() + 48, properties.fields.size());
        properties.options.encode(spec.buffer(), spec.at() + 56);
        spec.buffer().putInt(spec.at() + 56 + StoreOptions.BYTES, properties.isKeyValue ? 1 : 0);
        spec.buffer().putInt(spec.at() + 60 + StoreOptions.BYTES, properties.isStream ? 1 : 0);
        call.text(
                spec.buffer(),
                spec.at() + 64 + StoreOptions.BYTES,
                orEmpty(properties.eventTime));
        int at = places.at();
        for (FieldSpec field : properties.fields) {
            field.encode(call, places.buffer(), at);
            at += FieldSpec.BYTES;
        }
        return spec.address();
    }

    private static String orEmpty(@Nullable String text) {
        return text == null ? "" : text;
    }
}
