/* Generated from error.proto by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

/** The request can never succeed in its present form. */
public final class InvalidArgumentException extends ForebayException {
    private static final long serialVersionUID = 1L;

    InvalidArgumentException(Failure failure) {
        super(failure);
    }
}
