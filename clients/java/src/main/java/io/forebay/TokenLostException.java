/* The exception of the error code TokenLost. */
package io.forebay;

/** The token belongs to a log that is no longer served. */
public final class TokenLostException extends ForebayException {
    private static final long serialVersionUID = 1L;

    TokenLostException(Failure failure) {
        super(failure);
    }
}
