/* An alteration of a store's definition. */
package io.forebay;

import java.nio.ByteBuffer;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** A change from one version of a definition to the next, created by the static methods. */
public final class Alteration {
    static final int BYTES = HeaderConstants.ALTERATION_STRUCT_BYTES;

    private static final FieldType NO_TYPE = new FieldType(HeaderConstants.TYPE_NONE);

    private static final FieldSpec NO_FIELD = FieldSpec.of("", NO_TYPE);

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
        return new Alteration(kind, FieldSpec.of(name, type), to, StoreOptions.DEFAULT);
    }

    /**
     * Adds a field under a new id.
     *
     * @param field the field
     * @return the alteration
     */
    public static Alteration addField(FieldSpec field) {
        return new Alteration(HeaderConstants.ALTER_ADD_FIELD, field, "", StoreOptions.DEFAULT);
    }

    /**
     * Drops a field permanently; a field of the same name that is added later is another field.
     *
     * @param name the field's name
     * @return the alteration
     */
    public static Alteration dropField(String name) {
        return ofName(HeaderConstants.ALTER_DROP_FIELD, name, NO_TYPE, "");
    }

    /**
     * Drops all fields whose current name has this prefix.
     *
     * @param prefix the start of their names
     * @return the alteration
     */
    public static Alteration dropFieldsByPrefix(String prefix) {
        return ofName(HeaderConstants.ALTER_DROP_FIELDS_BY_PREFIX, prefix, NO_TYPE, "");
    }

    /**
     * Renames a field; the old name stays an alias.
     *
     * @param from the field's name
     * @param to the new name
     * @return the alteration
     */
    public static Alteration renameField(String from, String to) {
        return ofName(HeaderConstants.ALTER_RENAME_FIELD, from, NO_TYPE, to);
    }

    /**
     * Widens a field's type.
     *
     * @param name the field's name
     * @param to the wider type
     * @return the alteration
     */
    public static Alteration widenField(String name, FieldType to) {
        return ofName(HeaderConstants.ALTER_WIDEN_FIELD, name, to, "");
    }

    /**
     * Deletes every document of the store.
     *
     * @return the alteration
     */
    public static Alteration dropAll() {
        return new Alteration(HeaderConstants.ALTER_DROP_ALL, NO_FIELD, "", StoreOptions.DEFAULT);
    }

    /**
     * Replaces all of the store's options; take the options that are to stay from its definition.
     *
     * @param options the new options
     * @return the alteration
     */
    public static Alteration setOptions(StoreOptions options) {
        return new Alteration(HeaderConstants.ALTER_SET_OPTIONS, NO_FIELD, "", options);
    }

    /**
     * Replaces the rules of a stream's column. The stream checks the values of future events only;
     * an index covers all retained events.
     *
     * @param name the column's name
     * @param isRequired whether an event must have a value
     * @param allowed the values that the stream accepts; empty for all
     * @param index the column's index, or null
     * @return the alteration
     */
    public static Alteration setRules(
            String name, boolean isRequired, List<?> allowed, @Nullable ColumnIndex index) {
        FieldSpec named = FieldSpec.of(name, NO_TYPE);
        FieldSpec rules = named.required(isRequired).allowed(allowed).index(index);
        return new Alteration(HeaderConstants.ALTER_SET_RULES, rules, "", StoreOptions.DEFAULT);
    }

    /** Writes alterations as fb_alterations; returns their address. */
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
