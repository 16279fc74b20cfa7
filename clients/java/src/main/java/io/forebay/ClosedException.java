/* The exception of one code of the error table, Closed. */
package io.forebay;

/** The reader or client was closed. */
public final class ClosedException extends ForebayException {
    private static final long serialVersionUID = 1L;

    ClosedException(Failure failure) {
        super(failure);
    }
}
