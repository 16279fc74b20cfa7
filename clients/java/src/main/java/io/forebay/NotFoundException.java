/* Generated from error.proto by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

/** The named store or field does not exist; an absent key is no error. */
public final class NotFoundException extends ForebayException {
    private static final long serialVersionUID = 1L;

    NotFoundException(Failure failure) {
        super(failure);
    }
}
