/* Generated from error.proto by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

/** The credentials are valid, but lack the required role. */
public final class PermissionDeniedException extends ForebayException {
    private static final long serialVersionUID = 1L;

    PermissionDeniedException(Failure failure) {
        super(failure);
    }
}
