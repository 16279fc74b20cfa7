/* The exception of the error code Unsupported. */
package io.forebay;

/** This build, mode or implementation does not offer the operation. */
public final class UnsupportedException extends ForebayException {
    private static final long serialVersionUID = 1L;

    UnsupportedException(Failure failure) {
        super(failure);
    }
}
