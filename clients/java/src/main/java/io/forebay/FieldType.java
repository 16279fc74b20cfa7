/* The types that a field may have. */
package io.forebay;

/**
 * The type of a field: a scalar, a list of scalars, or a vector of a fixed length.
 *
 * @param code the type's number in the C ABI
 */
public record FieldType(int code) {
    /** True or false. */
    public static final FieldType BOOL = new FieldType(HeaderConstants.TYPE_BOOL);
    /** A 32-bit integer. */
    public static final FieldType INT32 = new FieldType(HeaderConstants.TYPE_INT32);
    /** A 64-bit integer. */
    public static final FieldType INT64 = new FieldType(HeaderConstants.TYPE_INT64);
    /** A 32-bit IEEE float. */
    public static final FieldType FLOAT32 = new FieldType(HeaderConstants.TYPE_FLOAT32);
    /** A 64-bit IEEE float. */
    public static final FieldType FLOAT64 = new FieldType(HeaderConstants.TYPE_FLOAT64);
    /** UTF-8 text. */
    public static final FieldType STRING = new FieldType(HeaderConstants.TYPE_STRING);
    /** Any bytes. */
    public static final FieldType BYTES = new FieldType(HeaderConstants.TYPE_BYTES);
    /** Microseconds since the Unix epoch. */
    public static final FieldType TIMESTAMP = new FieldType(HeaderConstants.TYPE_TIMESTAMP);

    private static final int LIST = 0x100;
    private static final int VECTOR_F32 = 0x201;
    private static final int VECTOR_F16 = 0x202;
    private static final int VECTOR_I8 = 0x203;
    private static final int VECTOR_LENGTH_MAX = 65_535;
    private static final String[] NAMES = {
        "none", "bool", "int32", "int64", "float32", "float64", "string", "bytes", "timestamp"
    };

    /**
     * Returns the type of a list of scalars, none of them null.
     *
     * @param scalar the type of its components
     * @return the list's type
     * @throws InvalidArgumentException if {@code scalar} is a list or a vector
     */
    public static FieldType list(FieldType scalar) {
        if (!scalar.isScalar()) {
            throw ForebayException.of(
                    ErrorCode.INVALID_ARGUMENT,
                    "a list cannot hold this type; declare a list of scalars");
        }
        return new FieldType(LIST | scalar.code);
    }

    /**
     * Returns the type of a vector of 32-bit floats.
     *
     * @param length the number of components, up to 65,535
     * @return the vector's type
     */
    public static FieldType vectorF32(int length) {
        return vector(VECTOR_F32, length);
    }

    /**
     * Returns the type of a vector of 16-bit floats.
     *
     * @param length the number of components, up to 65,535
     * @return the vector's type
     */
    public static FieldType vectorF16(int length) {
        return vector(VECTOR_F16, length);
    }

    /**
     * Returns the type of a vector of 8-bit integers.
     *
     * @param length the number of components, up to 65,535
     * @return the vector's type
     */
    public static FieldType vectorI8(int length) {
        return vector(VECTOR_I8, length);
    }

    private static FieldType vector(int kind, int length) {
        if (length < 0 || length > VECTOR_LENGTH_MAX) {
            throw ForebayException.of(
                    ErrorCode.LIMIT_EXCEEDED,
                    "the vector has more than 65,535 components; shorten the vector");
        }
        return new FieldType(kind | length << 16);
    }

    boolean isScalar() {
        return code >= HeaderConstants.TYPE_BOOL && code <= HeaderConstants.TYPE_TIMESTAMP;
    }

    boolean isList() {
        return (code & 0xff00) == LIST;
    }

    /** Returns the type of a list's components. */
    FieldType component() {
        return new FieldType(code & 0xff);
    }

    /** Returns 1 for f32, 2 for f16, 3 for i8; 0 for a type that is not a vector. */
    int vectorKind() {
        return (code & 0xff00) == 0x200 ? code & 0xff : 0;
    }

    /**
     * Returns the type as definitions and messages spell it, such as {@code int64} or {@code
     * f32[8]}.
     */
    @Override
    public String toString() {
        int length = code >>> 16;
        return switch (vectorKind()) {
            case 1 -> "f32[" + length + "]";
            case 2 -> "f16[" + length + "]";
            case 3 -> "i8[" + length + "]";
            default -> isList() ? "list<" + component() + ">" : NAMES[code & 0xf];
        };
    }
}
