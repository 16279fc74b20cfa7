/* The outcome of a batch. */
package io.forebay;

import java.util.List;
import java.util.OptionalLong;
import org.jspecify.annotations.Nullable;

/**
 * The outcome of a batch.
 *
 * @param token positions in the log of every change that is in the log
 * @param results the outcome of each change, in the order in which they were added
 */
public record BatchOutcome(Token token, List<ChangeOutcome> results) {
    /**
     * The outcome of one change of a batch.
     *
     * @param result the result; null if the change was refused
     * @param version the document's version, if the condition failed and the document has a
     *     version
     * @param error the permanent refusal; null if the change was not refused
     */
    public record ChangeOutcome(
            WriteOutcome.@Nullable WriteResult result,
            OptionalLong version,
            @Nullable ForebayException error) {
        static ChangeOutcome of(
                int result, OptionalLong version, @Nullable ForebayException error) {
            return new ChangeOutcome(
                    error == null ? WriteOutcome.WriteResult.values()[result - 1] : null,
                    version,
                    error);
        }
    }

    /**
     * Returns the outcome if every change is in the log.
     *
     * @return this outcome
     * @throws ForebayException the first change's error
     */
    public BatchOutcome requireComplete() {
        for (ChangeOutcome outcome : results) {
            ForebayException error = outcome.error();
            if (error != null) {
                throw error;
            }
        }
        return this;
    }

    WriteOutcome single() {
        ChangeOutcome outcome = requireComplete().results().get(0);
        WriteOutcome.WriteResult result = outcome.result();
        if (result == null) {
            throw ForebayException.of(
                    ErrorCode.INTERNAL, "a change has no result; report this as a bug");
        }
        return new WriteOutcome(token, result, outcome.version());
    }
}
