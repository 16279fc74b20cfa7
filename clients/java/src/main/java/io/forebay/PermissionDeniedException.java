/* The exception of one code of the error table, PermissionDenied. */
package io.forebay;

/** Valid credentials without the needed role. */
public final class PermissionDeniedException extends ForebayException {
    private static final long serialVersionUID = 1L;

    PermissionDeniedException(Failure failure) {
        super(failure);
    }
}
