/* Generated from error.proto by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

/** The service is not ready or not reachable yet. */
public final class UnavailableException extends ForebayException {
    private static final long serialVersionUID = 1L;

    UnavailableException(Failure failure) {
        super(failure);
    }
}
