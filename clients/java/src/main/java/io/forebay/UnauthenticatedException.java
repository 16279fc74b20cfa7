/* Generated from error.proto by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

/** The call has no valid credentials. */
public final class UnauthenticatedException extends ForebayException {
    private static final long serialVersionUID = 1L;

    UnauthenticatedException(Failure failure) {
        super(failure);
    }
}
