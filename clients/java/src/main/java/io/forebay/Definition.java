/* Definitions of stores. */
package io.forebay;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * A store's definition at one version: everything that writers and readers need.
 *
 * @param storeId the store's permanent id
 * @param name the store's name
 * @param version the version of this definition, from 1
 * @param keyType the type of the primary key
 * @param partitionKey the field that partitions the store, or null for the primary key
 * @param partitions the number of partitions
 * @param options the options
 * @param isKeyValue whether the store is a key-value store
 * @param isStream whether the store is a stream of events
 * @param eventTime a stream's column with the event time, or null
 * @param fields the live fields, by ascending id
 */
public record Definition(
        long storeId,
        String name,
        int version,
        KeyType keyType,
        @Nullable String partitionKey,
        int partitions,
        StoreOptions options,
        boolean isKeyValue,
        boolean isStream,
        @Nullable String eventTime,
        List<Field> fields) {
    /**
     * A field of a definition.
     *
     * @param id the field's permanent id
     * @param name the current name
     * @param type the type
     * @param fallback the value that a gather writes for absent and null, or null
     * @param ttl time to live of each write without its own, or null
     * @param aliases earlier names, which stay valid
     * @param isRequired whether a stream refuses events without a value
     * @param allowed the values that a stream accepts; empty for all
     * @param index the index of a stream's column, or null
     */
    public record Field(
            int id,
            String name,
            FieldType type,
            @Nullable Object fallback,
            @Nullable Duration ttl,
            List<String> aliases,
            boolean isRequired,
            List<Object> allowed,
            @Nullable ColumnIndex index) {}

    /**
     * Returns the live field with this name or alias.
     *
     * @param wanted the name
     * @return the field, or empty
     */
    public Optional<Field> field(String wanted) {
        Optional<Field> named =
                fields.stream().filter(field -> field.name().equals(wanted)).findFirst();
        return named.or(
                () -> fields.stream().filter(f -> f.aliases().contains(wanted)).findFirst());
    }

    static Definition unpack(Unpacker packed) {
        long storeId = packed.i64();
        String name = packed.text();
        int version = packed.i32();
        KeyType keyType = KeyType.of(packed.i32());
        String partitionKey = packed.text();
        int partitions = packed.i32();
        Duration ttl = packed.duration();
        Duration heartbeat = Duration.ofMillis(Integer.toUnsignedLong(packed.i32()));
        boolean isVersioned = packed.flag();
        Duration logRetention = packed.duration();
        long logRetentionBytes = packed.i64();
        StoreOptions options =
                StoreOptions.builder()
                        .ttl(ttl)
                        .heartbeat(heartbeat)
                        .versioned(isVersioned)
                        .logRetention(logRetention)
                        .logRetentionBytes(logRetentionBytes)
                        .build();
        boolean isKeyValue = packed.flag();
        boolean isStream = packed.flag();
        String eventTime = packed.text();
        int count = packed.i32();
        List<Field> fields = new ArrayList<>();
        for (int place = 0; place < count; place++) {
            fields.add(unpackField(packed));
        }
        return new Definition(
                storeId,
                name,
                version,
                keyType,
                partitionKey.isEmpty() ? null : partitionKey,
                partitions,
                options,
                isKeyValue,
                isStream,
                eventTime.isEmpty() ? null : eventTime,
                List.copyOf(fields));
    }

    private static Field unpackField(Unpacker packed) {
        int id = packed.i32();
        String name = packed.text();
        FieldType type = new FieldType(packed.i32());
        Object fallback = packed.object();
        Duration ttl = packed.duration();
        int count = packed.i32();
        List<String> aliases = new ArrayList<>();
        for (int place = 0; place < count; place++) {
            aliases.add(packed.text());
        }
        boolean isRequired = packed.flag();
        count = packed.i32();
        List<Object> allowed = new ArrayList<>();
        for (int place = 0; place < count; place++) {
            allowed.add(packed.object());
        }
        return new Field(
                id,
                name,
                type,
                fallback,
                ttl,
                List.copyOf(aliases),
                isRequired,
                List.copyOf(allowed),
                ColumnIndex.of(packed.u8()));
    }
}
