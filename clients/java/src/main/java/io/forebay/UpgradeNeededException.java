/* The exception of one code of the error table, UpgradeNeeded. */
package io.forebay;

/** A format, change kind or fold version that this build does not know. */
public final class UpgradeNeededException extends ForebayException {
    private static final long serialVersionUID = 1L;

    UpgradeNeededException(Failure failure) {
        super(failure);
    }
}
