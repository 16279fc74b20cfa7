/* Generated from error.proto by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

/** The deadline passed before anything was sent. */
public final class DeadlineExceededException extends ForebayException {
    private static final long serialVersionUID = 1L;

    DeadlineExceededException(Failure failure) {
        super(failure);
    }
}
