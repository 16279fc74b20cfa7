/* Reads the packed forms that {@code forebay.h} describes. */
package io.forebay;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.OptionalInt;
import java.util.OptionalLong;
import org.jspecify.annotations.Nullable;

/** A cursor over packed bytes. */
final class Unpacker {
    private static final long NONE = Long.MIN_VALUE;

    private final ByteBuffer bytes;

    Unpacker(byte[] bytes) {
        this.bytes = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    boolean hasMore() {
        return bytes.hasRemaining();
    }

    int u8() {
        return bytes.get() & 0xff;
    }

    boolean flag() {
        return u8() != 0;
    }

    int i32() {
        return bytes.getInt();
    }

    long i64() {
        return bytes.getLong();
    }

    OptionalLong optional() {
        long number = i64();
        return number == NONE ? OptionalLong.empty() : OptionalLong.of(number);
    }

    @Nullable Duration duration() {
        long micros = i64();
        return micros == NONE
                ? null
                : Duration.ofSeconds(micros / 1_000_000, micros % 1_000_000 * 1_000);
    }

    @Nullable Instant instant() {
        long micros = i64();
        return micros == NONE ? null : Values.instant(micros);
    }

    byte[] bytes() {
        byte[] part = new byte[i32()];
        bytes.get(part);
        return part;
    }

    String text() {
        return new String(bytes(), StandardCharsets.UTF_8);
    }

    Values.EncodedValue value() {
        int type = i32();
        return new Values.EncodedValue(type, bytes());
    }

    /** Reads a value as a Java object; null for none. */
    @Nullable Object object() {
        Values.EncodedValue value = value();
        return value.type() == 0
                ? null
                : Values.decode(new FieldType(value.type()), value.bytes());
    }

    /** Reads a failure; null for none. */
    @Nullable ForebayException failure() {
        int code = i32();
        int applies = i32();
        int partition = i32();
        OptionalLong keyDigest = optional(applies & 2);
        OptionalLong limit = optional(applies & 4);
        OptionalLong actual = optional(applies & 8);
        long pending = i64();
        String message = text();
        String store = text();
        String field = text();
        if (code == 0) {
            return null;
        }
        return ForebayException.of(
                new ForebayException.Failure(
                        ErrorCode.of(code),
                        message,
                        store.isEmpty() ? null : store,
                        (applies & 1) == 0 ? OptionalInt.empty() : OptionalInt.of(partition),
                        field.isEmpty() ? null : field,
                        keyDigest,
                        limit,
                        actual,
                        pending));
    }

    private OptionalLong optional(int applies) {
        long number = i64();
        return applies == 0 ? OptionalLong.empty() : OptionalLong.of(number);
    }

    Key key() {
        KeyType type = KeyType.of(i32());
        byte[] key = bytes();
        int partitionType = i32();
        Key partitionKey =
                partitionType == 0
                        ? null
                        : Key.ofParts(KeyType.of(partitionType), bytes(), null);
        return Key.ofParts(type, key, partitionKey);
    }
}
