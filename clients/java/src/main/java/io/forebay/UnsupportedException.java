/* Generated from error.proto by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

/** This build, mode or implementation does not offer it. */
public final class UnsupportedException extends ForebayException {
    private static final long serialVersionUID = 1L;

    UnsupportedException(Failure failure) {
        super(failure);
    }
}
