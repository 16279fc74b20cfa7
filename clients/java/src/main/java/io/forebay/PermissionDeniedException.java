/* The exception of the error code PermissionDenied. */
package io.forebay;

/** Valid credentials without the needed role. */
public final class PermissionDeniedException extends ForebayException {
    private static final long serialVersionUID = 1L;

    PermissionDeniedException(Failure failure) {
        super(failure);
    }
}
