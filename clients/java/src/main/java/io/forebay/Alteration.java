/* One alteration of a store's definition. */
package io.forebay;

import java.nio.ByteBuffer;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** What changes from one version of a definition to the next. Made by the static methods. */
public final class Alteration {
    static final int BYTES = 104 + StoreOptions.BYTES;

    private static final FieldSpec NO_FIELD = new FieldSpec("", new FieldType(0));

    private final int kind;
    private final FieldSpec field;
    private final String to;
    private final StoreOptions options;

    private Alteration(int kind, FieldSpec field, String to, StoreOptions options) {
        this.kind = kind;
        this.field = field;
        this.to = to;
        this.options = options;
    }

    private static Alteration ofName(int kind, String name, FieldType type, String to) {
        return new Alteration(kind, new FieldSpec(name, type), to, StoreOptions.DEFAULT);
    }

    /**
     * Adds a field under a new id.
     *
     * @param field the field
     * @return the alteration
     */
    public static Alteration addField(FieldSpec field) {
        return new Alteration(1, field, "", StoreOptions.DEFAULT);
    }

    /**
     * Drops a field for good; a field of the same name that is added later is another one.
     *
     * @param name the field's name
     * @return the alteration
     */
    public static Alteration dropField(String name) {
        return ofName(2, name, NO_FIELD.type(), "");
    }

    /**
     * Drops all fields whose current name starts so.
     *
     * @param prefix the start of their names
     * @return the alteration
     */
    public static Alteration dropFieldsByPrefix(String prefix) {
        return ofName(3, prefix, NO_FIELD.type(), "");
    }

    /**
     * Gives a field another name; the old one stays an alias.
     *
     * @param from its name
     * @param to its new name
     * @return the alteration
     */
    public static Alteration renameField(String from, String to) {
        return ofName(4, from, NO_FIELD.type(), to);
    }

    /**
     * Gives a field a wider type.
     *
     * @param name its name
     * @param to the wider type
     * @return the alteration
     */
    public static Alteration widenField(String name, FieldType to) {
        return ofName(5, name, to, "");
    }

    /**
     * Deletes every document of the store.
     *
     * @return the alteration
     */
    public static Alteration dropAll() {
        return new Alteration(6, NO_FIELD, "", StoreOptions.DEFAULT);
    }

    /**
     * Replaces all of the store's options; those that are to stay are in its definition.
     *
     * @param options the new options
     * @return the alteration
     */
    public static Alteration setOptions(StoreOptions options) {
        return new Alteration(7, NO_FIELD, "", options);
    }

    /**
     * Replaces what a stream does with a column: what it refuses of its values holds for events
     * from now on, and an index has all that are retained.
     *
     * @param name the column's name
     * @param isRequired whether an event must have a value of it
     * @param allowed the values that are let in; empty for all
     * @param index how events are found by it, or null
     * @return the alteration
     */
    public static Alteration setRules(
            String name, boolean isRequired, List<?> allowed, @Nullable ColumnIndex index) {
        FieldSpec named = new FieldSpec(name, NO_FIELD.type()).allowing(allowed).index(index);
        FieldSpec rules = isRequired ? named.required() : named;
        return new Alteration(8, rules, "", StoreOptions.DEFAULT);
    }

    /** Writes them as fb_alterations; answers their address. */
    static long encode(CallBuffer call, List<Alteration> alterations) {
        CallBuffer.Place places = call.allocate((long) BYTES * alterations.size());
        int at = places.at();
        for (Alteration alteration : alterations) {
            alteration.encode(call, places.buffer(), at);
            at += BYTES;
        }
        return places.address();
    }

    void encode(CallBuffer call, ByteBuffer buffer, int at) {
        buffer.putInt(at, kind);
        field.encode(call, buffer, at + 8);
        call.text(buffer, at + 88, to);
        options.encode(buffer, at + 104);
    }
}
