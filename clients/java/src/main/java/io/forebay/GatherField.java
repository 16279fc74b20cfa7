/* A field of a gather. */
package io.forebay;

import org.jspecify.annotations.Nullable;

/**
 * A field to gather.
 *
 * @param name its name or an alias
 * @param fallback what its cells hold when absent or null: a boxed number, or for a vector a
 *      float[]
 *     too; null takes the schema's default, and 0 without one
 */
public record GatherField(String name, @Nullable Object fallback) {
    static final int BYTES = 40;

    /**
     * A field with the schema's default.
     *
     * @param name its name or an alias
     */
    public GatherField(String name) {
        this(name, null);
    }
}
