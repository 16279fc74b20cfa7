/* A field as a reader holds it. */
package io.forebay;

/**
 * A field of one reader, resolved once by name, and the type that it is read as. It survives every
 * alteration: a new name, a wider type, other fields that come and go; after a drop it answers
 * absent. Any thread may use it; it needs no close.
 */
public final class FieldHandle {
    private final String name;
    private final FieldType type;
    private final long id;

    FieldHandle(String name, FieldType type, long id) {
        this.name = name;
        this.type = type;
        this.id = id;
    }

    /**
     * The name that it was resolved by.
     *
     * @return the name
     */
    public String name() {
        return name;
    }

    /**
     * The type that it is read as.
     *
     * @return the type
     */
    public FieldType type() {
        return type;
    }

    long id() {
        return id;
    }
}
