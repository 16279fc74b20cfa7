/* Fields resolved to the columns of a matrix. */
package io.forebay;

import java.util.ArrayList;
import java.util.List;

/**
 * A plan to gather fields into the columns of a matrix: one column for a number, one per component
 * of a vector. A plan survives every alteration as a handle does. Safe to share; {@link #close} or
 * the garbage collector closes it.
 */
public final class GatherPlan implements AutoCloseable {
    /** The cell types of a matrix; in the order of the codes of the native core. */
    enum Cell {
        FLOAT(Float.BYTES),
        DOUBLE(Double.BYTES),
        LONG(Long.BYTES);

        final int bytes;

        Cell(int bytes) {
            this.bytes = bytes;
        }
    }

    /**
     * The columns of a field.
     *
     * @param field the name in the plan
     * @param first the first column
     * @param count the number of columns: 1, or the components of a vector
     */
    public record GatherColumns(String field, int first, int count) {}

    private final NativeId id;
    private final int width;
    private final Cell cell;
    private final List<GatherColumns> columns;

    private GatherPlan(long id, int width, Cell cell) {
        this.id = NativeId.ownedBy(this, id);
        this.width = width;
        this.cell = cell;
        this.columns = columnsOf(id);
    }

    static GatherPlan open(long reader, List<GatherField> fields, Cell cell, boolean lossy) {
        CallBuffer call = CallBuffer.take();
        try {
            CallBuffer.Place places = call.allocate((long) GatherField.BYTES * fields.size());
            int at = places.at();
            for (GatherField field : fields) {
                Values.EncodedValue value = Values.of(field.fallback());
                call.text(places.buffer(), at, field.name());
                places.buffer().putInt(at + 16, value.type());
                call.text(places.buffer(), at + 24, value.bytes());
                at += GatherField.BYTES;
            }
            call.check(
                    Native.CALLS.gatherPlanOpen(
                            reader,
                            places.address(),
                            fields.size(),
                            cell.ordinal(),
                            lossy ? 1 : 0,
                            call.out(0),
                            call.out(1),
                            call.error()));
            return new GatherPlan(call.outLong(0), Math.toIntExact(call.outLong(1)), cell);
        } finally {
            call.release();
        }
    }

    private static List<GatherColumns> columnsOf(long id) {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(Native.CALLS.gatherPlanColumns(id, call.out(0), call.error()));
            Unpacker packed = new Unpacker(call.takeBytes(0));
            List<GatherColumns> columns = new ArrayList<>();
            for (int left = packed.i32(); left > 0; left--) {
                columns.add(new GatherColumns(packed.text(), packed.i32(), packed.i32()));
            }
            return List.copyOf(columns);
        } finally {
            call.release();
        }
    }

    /**
     * Returns the number of columns of a row.
     *
     * @return the number of columns
     */
    public int width() {
        return width;
    }

    /**
     * Returns names and positions of the columns.
     *
     * @return the columns of each field, in the order of the fields
     */
    public List<GatherColumns> columns() {
        return columns;
    }

    Cell cell() {
        return cell;
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
