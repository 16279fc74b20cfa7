/* The exception of the error code InvalidArgument. */
package io.forebay;

/** The request can never succeed as it stands. */
public final class InvalidArgumentException extends ForebayException {
    private static final long serialVersionUID = 1L;

    InvalidArgumentException(Failure failure) {
        super(failure);
    }
}
