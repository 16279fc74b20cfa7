/* What names a document: its primary key, with its partition key where the store declares one. */
package io.forebay;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A document's key, encoded once. It is never converted: a store of int64 keys refuses a string.
 * Keep a key that is used often, and its bytes are made only once.
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
     * A string key.
     *
     * @param text any text without lone surrogates, empty too
     * @return the key
     * @throws InvalidArgumentException for a lone surrogate
     */
    public static Key of(String text) {
        return new Key(KeyType.STRING, Text.utf8(text), null);
    }

    /**
     * An int64 key.
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
     * A bytes key.
     *
     * @param bytes any bytes; they are copied
     * @return the key
     */
    public static Key of(byte[] bytes) {
        return new Key(KeyType.BYTES, bytes.clone(), null);
    }

    /**
     * The same key in a store that is partitioned by a field.
     *
     * @param partitionKey the value of that field
     * @return the key with its partition key
     */
    public Key within(Key partitionKey) {
        return new Key(type, bytes, new Key(partitionKey.type, partitionKey.bytes, null));
    }

    static Key ofParts(KeyType type, byte[] bytes, @Nullable Key partitionKey) {
        return new Key(type, bytes, partitionKey);
    }

    /**
     * The key's type.
     *
     * @return the type
     */
    public KeyType type() {
        return type;
    }

    /**
     * The text of a string key.
     *
     * @return the text
     * @throws InvalidArgumentException when the key is of another type
     */
    public String text() {
        require(KeyType.STRING);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    /**
     * The number of an int64 key.
     *
     * @return the number
     * @throws InvalidArgumentException when the key is of another type
     */
    public long number() {
        require(KeyType.INT64);
        return ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).getLong();
    }

    /**
     * The key's bytes, as every language hashes and compares them.
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
     * The partition key that goes with it.
     *
     * @return the partition key, or null where the store declares none
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

    /** Names the type alone: a key is never shown. */
    @Override
    public String toString() {
        return "Key(" + type + ", " + bytes.length + " bytes)";
    }
}
