/* The exception of the error code DeadlineExceeded. */
package io.forebay;

/** The caller's deadline passed before anything was sent. */
public final class DeadlineExceededException extends ForebayException {
    private static final long serialVersionUID = 1L;

    DeadlineExceededException(Failure failure) {
        super(failure);
    }
}
