/* Keys of documents: a primary key, with a partition key if the store declares one. */
package io.forebay;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A document's key, encoded once. A key is never converted: a store of int64 keys refuses a string.
 * Reuse a key that is used often, so that its bytes are built only once.
 */
public final class Key {
    private final KeyType type;
    private final byte[] bytes;
    private final @Nullable Key partitionKey;

    private Key(KeyType type, byte[] bytes, @Nullable Key partitionKey) {
        this.type = type;
        this.bytes = bytes;
        this.partitionKey = partitionKey;
    }

    /**
     * Creates a string key.
     *
     * @param text any text without lone surrogates, also empty
     * @return the key
     * @throws InvalidArgumentException for a lone surrogate
     */
    public static Key of(String text) {
        return new Key(KeyType.STRING, Text.utf8(text), null);
    }

    /**
     * Creates an int64 key.
     *
     * @param number any number
     * @return the key
     */
    public static Key of(long number) {
        byte[] bytes = new byte[8];
        ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).putLong(number);
        return new Key(KeyType.INT64, bytes, null);
    }

    /**
     * Creates a bytes key.
     *
     * @param bytes any bytes; they are copied
     * @return the key
     */
    public static Key of(byte[] bytes) {
        return new Key(KeyType.BYTES, bytes.clone(), null);
    }

    /**
     * Returns the same key in a store that is partitioned by a field.
     *
     * @param partitionKey the value of that field
     * @return the key with its partition key
     */
    public Key withPartitionKey(Key partitionKey) {
        return new Key(type, bytes, new Key(partitionKey.type, partitionKey.bytes, null));
    }

    static Key ofParts(KeyType type, byte[] bytes, @Nullable Key partitionKey) {
        return new Key(type, bytes, partitionKey);
    }

    /**
     * Returns the key's type.
     *
     * @return the type
     */
    public KeyType type() {
        return type;
    }

    /**
     * Returns the text of a string key.
     *
     * @return the text
     * @throws InvalidArgumentException if the key has another type
     */
    public String text() {
        require(KeyType.STRING);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    /**
     * Returns the number of an int64 key.
     *
     * @return the number
     * @throws InvalidArgumentException if the key has another type
     */
    public long number() {
        require(KeyType.INT64);
        return ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).getLong();
    }

    /**
     * Returns the key's bytes, as every language hashes and compares them.
     *
     * @return a copy
     */
    public byte[] toBytes() {
        return bytes.clone();
    }

    private void require(KeyType wanted) {
        if (type != wanted) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT, "the key is a " + type + ", not a " + wanted);
        }
    }

    byte[] bytes() {
        return bytes;
    }

    /**
     * Returns the key's partition key.
     *
     * @return the partition key, or null if the store declares none
     */
    public @Nullable Key partitionKey() {
        return partitionKey;
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return other instanceof Key key
                && type == key.type
                && Arrays.equals(bytes, key.bytes)
                && Objects.equals(partitionKey, key.partitionKey);
    }

    @Override
    public int hashCode() {
        return 31 * Arrays.hashCode(bytes) + Objects.hash(type, partitionKey);
    }

    /** Returns the type and the length alone: a key is never shown. */
    @Override
    public String toString() {
        return "Key(" + type + ", " + bytes.length + " bytes)";
    }
}
