/* Fields resolved to the columns of a matrix. */
package io.forebay;

import java.util.List;

/**
 * A plan to gather fields into the columns of a matrix: one column for a number, one per
 * component of a vector. It survives every alteration as a handle does. Safe to share; it is
 * closed with {@link #close}, or when it is forgotten.
 */
public final class GatherPlan implements AutoCloseable {
    private final NativeId id;
    private final int width;
    private final boolean wide;

    private GatherPlan(long id, int width, boolean wide) {
        this.id = NativeId.ownedBy(this, id);
        this.width = width;
        this.wide = wide;
    }

    static GatherPlan open(long reader, List<GatherField> fields, boolean wide, boolean lossy) {
        CallBuffer call = CallBuffer.take();
        try {
            CallBuffer.Place places = call.allocate((long) GatherField.BYTES * fields.size());
            int at = places.at();
            for (GatherField field : fields) {
                Values.Encoded value = Values.of(field.fallback());
                call.text(places.buffer(), at, field.name());
                places.buffer().putInt(at + 16, value.type());
                call.text(places.buffer(), at + 24, value.bytes());
                at += GatherField.BYTES;
            }
            call.check(
                    Native.CALLS.planOpen(
                            reader,
                            places.address(),
                            fields.size(),
                            wide ? 1 : 0,
                            lossy ? 1 : 0,
                            call.out(0),
                            call.out(1),
                            call.error()));
            return new GatherPlan(call.outLong(0), Math.toIntExact(call.outLong(1)), wide);
        } finally {
            call.release();
        }
    }

    /**
     * The columns of a row.
     *
     * @return how many there are
     */
    public int width() {
        return width;
    }

    boolean isWide() {
        return wide;
    }

    long id() {
        return id.id();
    }

    /** Closes the plan. A second close changes nothing. */
    @Override
    public void close() {
        id.close();
    }
}
