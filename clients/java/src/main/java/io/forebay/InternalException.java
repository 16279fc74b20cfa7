/* Generated from error.proto by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

/** An invariant is broken; the service's log records contain evidence. */
public final class InternalException extends ForebayException {
    private static final long serialVersionUID = 1L;

    InternalException(Failure failure) {
        super(failure);
    }
}
