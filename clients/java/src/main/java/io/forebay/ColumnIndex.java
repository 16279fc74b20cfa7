/* Indexes of a stream's columns, by which retained events are found. */
package io.forebay;

import org.jspecify.annotations.Nullable;

/** The index of a stream's column; an event without a value in the column is not in the index. */
public enum ColumnIndex {
    /**
     * Finds the events of one value, in the order of their times. An entry takes few bytes, however
     * long the value is.
     */
    EXACT,
    /** Finds the events of one value, or between two values. */
    RANGE;

    /** Returns the index's code in {@code forebay.h}; 0 for none. */
    static int code(@Nullable ColumnIndex index) {
        return index == null ? 0 : index.ordinal() + 1;
    }

    static @Nullable ColumnIndex of(int code) {
        return code == 0 ? null : values()[code - 1];
    }
}
