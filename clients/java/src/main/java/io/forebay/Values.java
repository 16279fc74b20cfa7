/* Conversion between Java values and the row codec's bytes; see {@code proto/spec/row.md}. */
package io.forebay;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The codec of single values. */
final class Values {
    private static final long SECOND_US = 1_000_000;

    private Values() {}

    /** An encoded value and its type; type 0 is null. */
    record EncodedValue(int type, byte[] bytes) {
        static final EncodedValue NULL = new EncodedValue(0, Text.NO_BYTES);
    }

    static EncodedValue of(@Nullable Object value) {
        if (value == null) {
            return EncodedValue.NULL;
        }
        if (value instanceof Float number) {
            return new EncodedValue(4, little(4).putInt(Float.floatToRawIntBits(number)).array());
        }
        if (value instanceof float[] vector) {
            ByteBuffer bytes = little(4 * vector.length);
            bytes.asFloatBuffer().put(vector);
            return new EncodedValue(FieldType.vectorF32(vector.length).code(), bytes.array());
        }
        if (value instanceof List<?> items) {
            return ofList(items);
        }
        return ofScalar(value);
    }

    private static EncodedValue ofScalar(Object value) {
        if (value instanceof Boolean truth) {
            return new EncodedValue(1, new byte[] {(byte) (truth ? 1 : 0)});
        }
        if (value instanceof Integer || value instanceof Short || value instanceof Byte) {
            return new EncodedValue(2, little(4).putInt(((Number) value).intValue()).array());
        }
        if (value instanceof Long number) {
            return new EncodedValue(3, little(8).putLong(number).array());
        }
        if (value instanceof Float number) {
            return new EncodedValue(4, little(4).putFloat(number).array());
        }
        if (value instanceof Double number) {
            return new EncodedValue(5, little(8).putDouble(number).array());
        }
        if (value instanceof String text) {
            return new EncodedValue(6, Text.utf8(text));
        }
        if (value instanceof byte[] bytes) {
            return new EncodedValue(7, bytes.clone());
        }
        if (value instanceof Instant time) {
            return new EncodedValue(8, little(8).putLong(micros(time)).array());
        }
        throw ForebayException.of(
                ErrorCode.INVALID_ARGUMENT,
                "no field holds a "
                        + value.getClass().getSimpleName()
                        + "; give a Boolean, Integer, Long, Float, Double, String, byte[], Instant,"
                        + " List or float[]");
    }

    private static EncodedValue ofList(List<?> items) {
        int type = 0;
        List<byte[]> parts = new ArrayList<>(items.size());
        long total = 0;
        for (Object item : items) {
            if (item == null) {
                throw ForebayException.of(
                        ErrorCode.INVALID_ARGUMENT, "the list holds a null; leave the nulls out");
            }
            EncodedValue part = ofScalar(item);
            if (type != 0 && type != part.type()) {
                throw ForebayException.of(
                        ErrorCode.INVALID_ARGUMENT,
                        "the list has components of several types; give a list of one type");
            }
            type = part.type();
            parts.add(part.bytes());
            total += 4L + part.bytes().length;
        }
        if (total > Integer.MAX_VALUE - 64) {
            throw ForebayException.of(
                    ErrorCode.LIMIT_EXCEEDED, "the value is larger than 16 MiB; shorten the value");
        }
        boolean measured = type == 6 || type == 7;
        ByteBuffer bytes = little((int) (measured ? total : total - 4L * parts.size()));
        for (byte[] part : parts) {
            if (measured) {
                bytes.putInt(part.length);
            }
            bytes.put(part);
        }
        // An empty list has any type; the field declares the type.
        return new EncodedValue(0x100 | (type == 0 ? 3 : type), bytes.array());
    }

    /** Encodes a vector of 8-bit integers, which Java cannot distinguish from bytes. */
    static EncodedValue ofI8(byte[] vector) {
        return new EncodedValue(FieldType.vectorI8(vector.length).code(), vector.clone());
    }

    static long micros(Instant time) {
        try {
            long seconds = Math.multiplyExact(time.getEpochSecond(), SECOND_US);
            return Math.addExact(seconds, time.getNano() / 1_000);
        } catch (ArithmeticException beyond) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT,
                    "the time does not fit 64 bits of microseconds; give a time nearer to 1970");
        }
    }

    static Instant instant(long micros) {
        long nanos = Math.floorMod(micros, SECOND_US) * 1_000;
        return Instant.ofEpochSecond(Math.floorDiv(micros, SECOND_US), nanos);
    }

    /**
     * Decodes bytes into a Java value: vectors of floats are {@code float[]}, of i8 {@code byte[]}.
     */
    static Object decode(FieldType type, byte[] bytes) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        return switch (type.vectorKind()) {
            case 1 -> {
                float[] vector = new float[bytes.length / 4];
                buffer.asFloatBuffer().get(vector);
                yield vector;
            }
            case 2 -> {
                float[] vector = new float[bytes.length / 2];
                for (int place = 0; place < vector.length; place++) {
                    vector[place] = half(buffer.getShort(2 * place));
                }
                yield vector;
            }
            case 3 -> bytes;
            default -> type.isList() ? decodeList(type.component(), buffer) : scalar(type, buffer);
        };
    }

    private static List<Object> decodeList(FieldType type, ByteBuffer buffer) {
        List<Object> items = new ArrayList<>();
        while (buffer.hasRemaining()) {
            int length =
                    switch (type.code()) {
                        case 1 -> 1;
                        case 2, 4 -> 4;
                        case 6, 7 -> buffer.getInt();
                        default -> 8;
                    };
            ByteBuffer part = buffer.slice(buffer.position(), length);
            items.add(scalar(type, part.order(ByteOrder.LITTLE_ENDIAN)));
            buffer.position(buffer.position() + length);
        }
        return List.copyOf(items);
    }

    private static Object scalar(FieldType type, ByteBuffer buffer) {
        return switch (type.code()) {
            case 1 -> buffer.get() != 0;
            case 2 -> buffer.getInt();
            case 3 -> buffer.getLong();
            case 4 -> buffer.getFloat();
            case 5 -> buffer.getDouble();
            case 6 -> StandardCharsets.UTF_8.decode(buffer).toString();
            case 7 -> {
                byte[] bytes = new byte[buffer.remaining()];
                buffer.get(bytes);
                yield bytes;
            }
            case 8 -> instant(buffer.getLong());
            default ->
                    throw ForebayException.of(
                            ErrorCode.UPGRADE_NEEDED,
                            "the native core returned an unknown type; upgrade this package");
        };
    }

    /** Widens a 16-bit float exactly. */
    static float half(short bits) {
        int sign = (bits & 0x8000) << 16;
        int exponent = bits >>> 10 & 0x1f;
        int fraction = bits & 0x3ff;
        if (exponent == 0) {
            float small = fraction * 0x1p-24f;
            return sign == 0 ? small : -small;
        }
        int wide = exponent == 0x1f ? 0xff : exponent + 112;
        return Float.intBitsToFloat(sign | wide << 23 | fraction << 13);
    }

    private static ByteBuffer little(int bytes) {
        return ByteBuffer.allocate(bytes).order(ByteOrder.LITTLE_ENDIAN);
    }
}
