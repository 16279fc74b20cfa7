/* How the retained events of a stream are found by a column's values. */
package io.forebay;

import org.jspecify.annotations.Nullable;

/** The index of a stream's column; events without a value of it are not found by it. */
public enum ColumnIndex {
    /**
     * Those of one value, in the order of their times. Takes few bytes for each event, however long
     * the value is.
     */
    EXACT,
    /** Those of one value, or between two. */
    RANGE;

    /** Its code in {@code forebay.h}; 0 for none. */
    static int code(@Nullable ColumnIndex index) {
        return index == null ? 0 : index.ordinal() + 1;
    }

    static @Nullable ColumnIndex of(int code) {
        return code == 0 ? null : values()[code - 1];
    }
}
