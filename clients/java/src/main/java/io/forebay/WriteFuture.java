/* Futures of changes whose caller does not wait. */
package io.forebay;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/** Receives the outcome of changes, and completes their future. */
final class WriteFuture<T> implements CompletionQueue.Listener {
    private final CompletableFuture<T> future = new CompletableFuture<>();
    private final int changes;
    private final Duration deadline;
    private final Function<BatchOutcome, T> answer;

    WriteFuture(int changes, Duration deadline, Function<BatchOutcome, T> answer) {
        this.changes = changes;
        this.deadline = deadline;
        this.answer = answer;
    }

    CompletableFuture<T> future() {
        return future;
    }

    @Override
    public void onEvent(Unpacker event) {
        T outcome;
        try {
            outcome = answer.apply(outcome(event));
        } catch (UnknownOutcomeException unknown) {
            unknown.told(changes, deadline);
            future.completeExceptionally(unknown);
            return;
        } catch (ForebayException failure) {
            future.completeExceptionally(failure);
            return;
        }
        future.complete(outcome);
    }

    private static BatchOutcome outcome(Unpacker event) {
        ForebayException failure = event.failure();
        if (failure != null) {
            throw failure;
        }
        Token token = new Token(event.bytes());
        int count = event.i32();
        List<BatchOutcome.ChangeOutcome> results = new ArrayList<>(count);
        for (int place = 0; place < count; place++) {
            int result = event.i32();
            boolean hasVersion = event.i32() != 0;
            long version = event.i64();
            results.add(
                    BatchOutcome.ChangeOutcome.of(
                            result,
                            hasVersion ? OptionalLong.of(version) : OptionalLong.empty(),
                            event.failure()));
        }
        return new BatchOutcome(token, List.copyOf(results));
    }
}
