/* The exception of one code of the error table, TokenLost. */
package io.forebay;

/** The token belongs to a log that is no longer served. */
public final class TokenLostException extends ForebayException {
    private static final long serialVersionUID = 1L;

    TokenLostException(Failure failure) {
        super(failure);
    }
}
