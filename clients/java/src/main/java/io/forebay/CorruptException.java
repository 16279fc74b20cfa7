/* The exception of the error code Corrupt. */
package io.forebay;

/** Bytes that fail their checksum or contradict their format. */
public final class CorruptException extends ForebayException {
    private static final long serialVersionUID = 1L;

    CorruptException(Failure failure) {
        super(failure);
    }
}
