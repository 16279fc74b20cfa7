/* The exception of the error code Unavailable. */
package io.forebay;

/** Not ready or not reachable yet; the same call may succeed later. */
public final class UnavailableException extends ForebayException {
    private static final long serialVersionUID = 1L;

    UnavailableException(Failure failure) {
        super(failure);
    }
}
