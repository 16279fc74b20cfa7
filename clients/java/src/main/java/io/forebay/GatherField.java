/* A field of a gather. */
package io.forebay;

import org.jspecify.annotations.Nullable;

/**
 * A field to gather.
 *
 * @param name the field's name or an alias
 * @param fallback the value of cells that are absent or null: a boxed number, or for a vector also
 *     a float[]; null takes the schema's default, or 0
 */
public record GatherField(String name, @Nullable Object fallback) {
    static final int BYTES = HeaderConstants.GATHER_FIELD_STRUCT_BYTES;

    /**
     * Creates a field with the schema's default.
     *
     * @param name the field's name or an alias
     */
    public GatherField(String name) {
        this(name, null);
    }
}
