/* Generated from error.proto by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

/** The bytes fail their checksum or contradict their format. */
public final class CorruptException extends ForebayException {
    private static final long serialVersionUID = 1L;

    CorruptException(Failure failure) {
        super(failure);
    }
}
