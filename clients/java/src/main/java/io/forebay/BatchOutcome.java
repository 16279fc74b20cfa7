/* What a caller hears of a batch. */
package io.forebay;

import java.util.List;
import java.util.OptionalLong;
import org.jspecify.annotations.Nullable;

/**
 * What became of a batch.
 *
 * @param token says where the log holds every change that it holds
 * @param changes what became of each change, in the order in which they were added
 */
public record BatchOutcome(Token token, List<Change> changes) {
    /**
     * What became of one change of a batch.
     *
     * @param result what became of it; null when it was refused
     * @param version the document's version, where its condition was not met and there is one
     * @param error why it was refused, for good; null when it was not
     */
    public record Change(
            WriteOutcome.@Nullable Result result,
            OptionalLong version,
            @Nullable ForebayException error) {
        static Change of(int result, OptionalLong version, @Nullable ForebayException error) {
            return new Change(
                    error == null ? WriteOutcome.Result.values()[result - 1] : null,
                    version,
                    error);
        }
    }

    /**
     * The outcome, if every change is in the log.
     *
     * @return this outcome
     * @throws ForebayException the first change's error
     */
    public BatchOutcome requireComplete() {
        for (Change change : changes) {
            ForebayException error = change.error();
            if (error != null) {
                throw error;
            }
        }
        return this;
    }

    WriteOutcome single() {
        Change change = requireComplete().changes().get(0);
        WriteOutcome.Result result = change.result();
        if (result == null) {
            throw ForebayException.of(ErrorCode.INTERNAL, "a change without a result; report it");
        }
        return new WriteOutcome(token, result, change.version());
    }
}
