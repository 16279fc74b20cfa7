/* Generated from error.proto by python3 clients/bindings/generate_bindings.py. */
package io.forebay;

/** The format, change kind or fold version is newer than this build. */
public final class UpgradeNeededException extends ForebayException {
    private static final long serialVersionUID = 1L;

    UpgradeNeededException(Failure failure) {
        super(failure);
    }
}
