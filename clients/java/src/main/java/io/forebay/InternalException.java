/* The exception of the error code Internal. */
package io.forebay;

/** A broken invariant; report it. */
public final class InternalException extends ForebayException {
    private static final long serialVersionUID = 1L;

    InternalException(Failure failure) {
        super(failure);
    }
}
