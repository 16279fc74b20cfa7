/* The exception of one code of the error table, Internal. */
package io.forebay;

/** A broken invariant; report it. */
public final class InternalException extends ForebayException {
    private static final long serialVersionUID = 1L;

    InternalException(Failure failure) {
        super(failure);
    }
}
