/* Generated from error.proto by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

/** The token's log is no longer served. */
public final class TokenLostException extends ForebayException {
    private static final long serialVersionUID = 1L;

    TokenLostException(Failure failure) {
        super(failure);
    }
}
