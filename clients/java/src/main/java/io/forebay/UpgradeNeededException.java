/* The exception of the error code UpgradeNeeded. */
package io.forebay;

/** A format, change kind or fold version that this build does not know. */
public final class UpgradeNeededException extends ForebayException {
    private static final long serialVersionUID = 1L;

    UpgradeNeededException(Failure failure) {
        super(failure);
    }
}
