/* What a caller hears of one write. */
package io.forebay;

import java.util.OptionalLong;

/**
 * What became of one write.
 *
 * @param token says where the log holds it; a reader that has applied this token sees it
 * @param result what became of it
 * @param version the document's version, where the condition was not met and the store keeps
 *      versions
 */
public record WriteOutcome(Token token, Result result, OptionalLong version) {
    /** What became of a change that is in the log. */
    public enum Result {
        /** It is in the log. It had no condition, so there is nothing more to know. */
        APPENDED,
        /** Its condition held, and it happened. */
        APPLIED,
        /** Its condition did not hold, and nothing happened. */
        NOT_MET
    }
}
