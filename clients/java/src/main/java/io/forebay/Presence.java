/* The three answers that a field may give. */
package io.forebay;

/** Whether a field is there. Absent, null and a value, an empty one too, are three answers. */
public enum Presence {
    /** There is no document, or it has no such field. */
    ABSENT,
    /** The field was set to null. */
    NULL,
    /** The field has a value. */
    VALUE;

    private static final Presence[] ALL = values();

    static Presence of(int code) {
        return ALL[code];
    }
}
