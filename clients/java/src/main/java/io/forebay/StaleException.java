/* The exception of the error code Stale. */
package io.forebay;

/** The data is older than the caller's bound. */
public final class StaleException extends ForebayException {
    private static final long serialVersionUID = 1L;

    StaleException(Failure failure) {
        super(failure);
    }
}
