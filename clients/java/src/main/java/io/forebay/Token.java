/* Tokens: the position of a write, for which a read may wait. */
package io.forebay;

import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/** The position of a write in the log: a reader that has applied the token sees the write. */
public final class Token {
    private final byte[] bytes;

    Token(byte[] bytes) {
        this.bytes = bytes;
    }

    /**
     * Restores a token that another process has passed on.
     *
     * @param bytes the result of {@link #toBytes} there
     * @return the token; a read with it checks the bytes
     */
    public static Token of(byte[] bytes) {
        return new Token(bytes.clone());
    }

    /**
     * Returns the token's bytes, to be passed on.
     *
     * @return a copy
     */
    public byte[] toBytes() {
        return bytes.clone();
    }

    byte[] bytes() {
        return bytes;
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return other instanceof Token token && Arrays.equals(bytes, token.bytes);
    }

    @Override
    public int hashCode() {
        return Arrays.hashCode(bytes);
    }
}
