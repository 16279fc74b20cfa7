/* The functions of the client that its second artifact may use. */
package io.forebay;

import io.forebay.internal.Call;
import io.forebay.internal.Calls;

/** {@link Calls} over the reads of this package. */
final class InternalCalls extends Calls {
    @Override
    public long function(int number) {
        return Native.CALLS.function(number);
    }

    @Override
    public Call take() {
        return CallBuffer.take();
    }

    @Override
    public long idOf(Reads reads) {
        return reads.reader;
    }

    @Override
    public long idOf(FieldHandle field) {
        return field.id();
    }

    @Override
    public long idOf(GatherPlan plan) {
        return plan.id();
    }

    @Override
    public int cellOf(GatherPlan plan) {
        return plan.cell().ordinal();
    }

    @Override
    public long integer(
            Reads reads, Call call, FieldHandle field, FieldType wanted, long fallback) {
        return reads.integer((CallBuffer) call, field, wanted, fallback);
    }

    @Override
    public double real(
            Reads reads, Call call, FieldHandle field, FieldType wanted, double fallback) {
        return reads.real((CallBuffer) call, field, wanted, fallback);
    }

    @Override
    public Presence presence(Reads reads, Call call, FieldHandle field) {
        return reads.presence((CallBuffer) call, field);
    }

    @Override
    public ForebayException invalid(String message) {
        return ForebayException.of(ErrorCode.INVALID_ARGUMENT, message);
    }

    @Override
    public ForebayException broken(Throwable cause) {
        return ForebayException.broken(cause);
    }
}
