/* Generated from error.proto by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

/** A limit was exceeded. The error names the limit and the actual value. */
public final class LimitExceededException extends ForebayException {
    private static final long serialVersionUID = 1L;

    LimitExceededException(Failure failure) {
        super(failure);
    }
}
