/* The exception of the error code NotFound. */
package io.forebay;

/** The store or field that was named does not exist. An absent key is no error. */
public final class NotFoundException extends ForebayException {
    private static final long serialVersionUID = 1L;

    NotFoundException(Failure failure) {
        super(failure);
    }
}
