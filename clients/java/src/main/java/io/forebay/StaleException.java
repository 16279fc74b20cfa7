/* Generated from error.proto by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

/** The data is older than the caller's bound. */
public final class StaleException extends ForebayException {
    private static final long serialVersionUID = 1L;

    StaleException(Failure failure) {
        super(failure);
    }
}
