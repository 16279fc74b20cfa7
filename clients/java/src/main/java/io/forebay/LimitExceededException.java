/* The exception of the error code LimitExceeded. */
package io.forebay;

/** A limit was passed; the error names the limit and the actual value. */
public final class LimitExceededException extends ForebayException {
    private static final long serialVersionUID = 1L;

    LimitExceededException(Failure failure) {
        super(failure);
    }
}
