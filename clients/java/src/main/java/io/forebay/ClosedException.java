/* Generated from error.proto by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

/** The reader or client was closed. */
public final class ClosedException extends ForebayException {
    private static final long serialVersionUID = 1L;

    ClosedException(Failure failure) {
        super(failure);
    }
}
