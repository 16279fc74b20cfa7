/* The exception of one code of the error table, NotFound. */
package io.forebay;

/** The store or field that was named does not exist. An absent key is no error. */
public final class NotFoundException extends ForebayException {
    private static final long serialVersionUID = 1L;

    NotFoundException(Failure failure) {
        super(failure);
    }
}
