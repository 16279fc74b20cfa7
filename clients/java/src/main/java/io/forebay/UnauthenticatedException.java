/* The exception of the error code Unauthenticated. */
package io.forebay;

/** No valid credentials. */
public final class UnauthenticatedException extends ForebayException {
    private static final long serialVersionUID = 1L;

    UnauthenticatedException(Failure failure) {
        super(failure);
    }
}
