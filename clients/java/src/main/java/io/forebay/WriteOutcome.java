/* The outcome of one write. */
package io.forebay;

import java.util.OptionalLong;

/**
 * The outcome of one write.
 *
 * @param token the position of the write in the log; a reader that has applied this token sees the
 *     write
 * @param result the result
 * @param version the document's version, if the condition failed and the store keeps versions
 */
public record WriteOutcome(Token token, WriteResult result, OptionalLong version) {
    /** The result of a change that is in the log. */
    public enum WriteResult {
        /** The change is in the log. The change had no condition, so nothing more will be known. */
        APPENDED,
        /** The condition held, and the change happened. */
        APPLIED,
        /** The condition did not hold, and nothing happened. */
        CONDITION_FAILED
    }
}
