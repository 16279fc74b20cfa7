/* Generated from error.proto by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

/** Another definition came first. */
public final class ConflictException extends ForebayException {
    private static final long serialVersionUID = 1L;

    ConflictException(Failure failure) {
        super(failure);
    }
}
