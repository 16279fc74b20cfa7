/* The types that a store's keys may have. */
package io.forebay;

/** The type of a store's primary key, and of its partition key. */
public enum KeyType {
    /** UTF-8 text. */
    STRING(HeaderConstants.KEY_STRING),
    /** Any bytes. */
    BYTES(HeaderConstants.KEY_BYTES),
    /** A 64-bit integer. */
    INT64(HeaderConstants.KEY_INT64);

    private final int code;

    KeyType(int code) {
        this.code = code;
    }

    int code() {
        return code;
    }

    static KeyType of(int code) {
        return switch (code) {
            case HeaderConstants.KEY_STRING -> STRING;
            case HeaderConstants.KEY_BYTES -> BYTES;
            case HeaderConstants.KEY_INT64 -> INT64;
            default ->
                    throw ForebayException.of(
                            ErrorCode.INTERNAL,
                            "the native core returned an unknown key type; upgrade this package");
        };
    }
}
