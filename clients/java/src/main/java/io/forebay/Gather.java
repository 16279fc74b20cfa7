/* A gather: its checks, its off-heap memory, its call. */
package io.forebay;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** A gather of one plan for some keys, used once. */
final class Gather {
    private final NativeReads reads;
    private final GatherPlan plan;
    private final BatchKeys keys;
    private final byte @Nullable [] statuses;
    private final byte @Nullable [] cells;

    Gather(
            NativeReads reads,
            GatherPlan plan,
            BatchKeys keys,
            byte @Nullable [] statuses,
            byte @Nullable [] cells) {
        this.reads = reads;
        this.plan = plan;
        this.keys = keys;
        this.statuses = statuses;
        this.cells = cells;
    }

    void into(float[] values) {
        check(GatherPlan.Cell.FLOAT, values.length);
        run(found -> found.asFloatBuffer().get(values, 0, count()));
    }

    void into(double[] values) {
        check(GatherPlan.Cell.DOUBLE, values.length);
        run(found -> found.asDoubleBuffer().get(values, 0, count()));
    }

    void into(long[] values) {
        check(GatherPlan.Cell.LONG, values.length);
        run(found -> found.asLongBuffer().get(values, 0, count()));
    }

    /** Returns the number of cells of the matrix, after {@link #check}. */
    private int count() {
        return keys.size() * plan.width();
    }

    /** Refuses a plan of another type, and an output that is too small. */
    private void check(GatherPlan.Cell cell, long room) {
        long count = (long) keys.size() * plan.width();
        if (plan.cell() != cell) {
            throw refused("the plan is for a matrix of another type; plan a gather for this type");
        }
        if (room < count
                || (statuses != null && statuses.length < keys.size())
                || (cells != null && cells.length < count)) {
            throw refused(
                    "the arrays need room for " + count + " cells and " + keys.size() + " keys");
        }
    }

    private static ForebayException refused(String why) {
        return ForebayException.of(ErrorCode.INVALID_ARGUMENT, why);
    }

    /** Gathers into memory of the call, and passes the memory to a taker. */
    private void run(Consumer<ByteBuffer> taker) {
        CallBuffer call = CallBuffer.take();
        try {
            int bytes = Math.multiplyExact(plan.cell().bytes, count());
            CallBuffer.Place matrix = call.allocateDirty(bytes);
            fill(call, matrix.address());
            ByteBuffer found = matrix.buffer().slice(matrix.at(), bytes);
            taker.accept(found.order(ByteOrder.LITTLE_ENDIAN));
        } catch (ArithmeticException beyond) {
            throw ForebayException.of(
                    ErrorCode.LIMIT_EXCEEDED, "the matrix exceeds 2 GiB; split the call");
        } finally {
            Reference.reachabilityFence(plan);
            call.release();
        }
    }

    /** Gathers into a direct buffer, at its position. */
    void into(ByteBuffer values) {
        if (!values.isDirect() || values.isReadOnly()) {
            throw refused(
                    "the buffer is read-only or not direct; give a writable direct buffer, or an"
                            + " array");
        }
        if (values.order() != ByteOrder.nativeOrder()) {
            throw refused("the buffer has another byte order; set ByteOrder.nativeOrder()");
        }
        int cellBytes = plan.cell().bytes;
        long at = Native.CALLS.addressOf(values) + values.position();
        if (at % cellBytes != 0) {
            throw refused("put the buffer's position to a multiple of " + cellBytes + " bytes");
        }
        check(plan.cell(), values.remaining() / cellBytes);
        CallBuffer call = CallBuffer.take();
        try {
            fill(call, at);
        } finally {
            Reference.reachabilityFence(plan);
            Reference.reachabilityFence(values);
            call.release();
        }
    }

    private void fill(CallBuffer call, long matrix) {
        int count = count();
        long keysAt = keys.encode(call);
        long readAt = call.read(reads.read);
        CallBuffer.Place found = statuses == null ? null : call.allocateDirty(keys.size());
        CallBuffer.Place mask = cells == null ? null : call.allocateDirty(count);
        long foundAt = found == null ? 0 : found.address();
        long maskAt = mask == null ? 0 : mask.address();
        call.check(call(keysAt, readAt, matrix, count, foundAt, maskAt, call.error()));
        if (found != null && statuses != null) {
            found.buffer().get(found.at(), statuses, 0, keys.size());
        }
        if (mask != null && cells != null) {
            mask.buffer().get(mask.at(), cells, 0, count);
        }
    }

    private int call(
            long keysAt, long readAt, long at, long count, long found, long mask, long error) {
        NativeCalls calls = Native.CALLS;
        long reader = reads.reader;
        long id = plan.id();
        return switch (plan.cell()) {
            case FLOAT ->
                    calls.readerGatherFloat(
                            reader, id, keysAt, readAt, at, count, found, mask, error);
            case DOUBLE ->
                    calls.readerGatherDouble(
                            reader, id, keysAt, readAt, at, count, found, mask, error);
            case LONG ->
                    calls.readerGatherLong(
                            reader, id, keysAt, readAt, at, count, found, mask, error);
        };
    }
}
