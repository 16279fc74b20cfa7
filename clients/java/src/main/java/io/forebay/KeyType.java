/* The types that a store's keys may have. */
package io.forebay;

/** The type of a store's primary key, and of its partition key. */
public enum KeyType {
    /** UTF-8 text. */
    STRING(1),
    /** Any bytes. */
    BYTES(2),
    /** A 64-bit integer. */
    INT64(3);

    private final int code;

    KeyType(int code) {
        this.code = code;
    }

    int code() {
        return code;
    }

    static KeyType of(int code) {
        return switch (code) {
            case 1 -> STRING;
            case 2 -> BYTES;
            case 3 -> INT64;
            default ->
                    throw ForebayException.of(
                            ErrorCode.INTERNAL,
                            "the native core returned an unknown key type; upgrade this package");
        };
    }
}
