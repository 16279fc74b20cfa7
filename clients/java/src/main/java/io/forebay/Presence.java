/* The three presences of a field. */
package io.forebay;

/** Presence of a field. Absent, null and a value, which may be empty, are three results. */
public enum Presence {
    /** There is no document, or the document does not have the field. */
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
