/* The way from the second artifact into the client. */
package io.forebay.internal;

import io.forebay.FieldHandle;
import io.forebay.FieldType;
import io.forebay.ForebayException;
import io.forebay.GatherPlan;
import io.forebay.Presence;
import io.forebay.Reads;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** What the client lets its second artifact do. */
public abstract class Calls {
    /** The number of fb_reader_get_bytes. */
    public static final int GET_BYTES = 0;

    /** The number of fb_reader_get_many_into. */
    public static final int GET_MANY = 1;

    /** The number of fb_reader_gather_f32; those of f64 and i64 follow. */
    public static final int GATHER = 2;

    private static volatile @Nullable Calls only;

    /** For the client alone. */
    protected Calls() {}

    /**
     * Makes the client's calls known, once.
     *
     * @param calls the client's own
     */
    public static synchronized void install(Calls calls) {
        if (only != null) {
            throw new IllegalStateException("the client has said what it lets others do");
        }
        only = calls;
    }

    /**
     * The client's calls; there once a reader is.
     *
     * @return the calls
     */
    public static Calls get() {
        return Objects.requireNonNull(only, "there is no reader yet");
    }

    /**
     * A function of the native core.
     *
     * @param number one of the constants here
     * @return its address
     */
    public abstract long function(int number);

    /**
     * Memory for a call.
     *
     * @return the memory; release it
     */
    public abstract Call take();

    /**
     * The id of a reader.
     *
     * @param reads reads of it
     * @return the id
     */
    public abstract long idOf(Reads reads);

    /**
     * The id of a field.
     *
     * @param field the field
     * @return the id
     */
    public abstract long idOf(FieldHandle field);

    /**
     * The id of a plan.
     *
     * @param plan the plan, which outlives the use of its id
     * @return the id
     */
    public abstract long idOf(GatherPlan plan);

    /**
     * The type of a plan's cells.
     *
     * @param plan the plan
     * @return 0 for floats, 1 for doubles, 2 for longs
     */
    public abstract int cellOf(GatherPlan plan);

    /**
     * Reads a bool, integer or timestamp by the call's key, and releases the call.
     *
     * @param reads the reads
     * @param call the call, with its key
     * @param field the field
     * @param wanted the type that the field is read as
     * @param fallback what to answer when absent or null
     * @return the value
     */
    public abstract long integer(
            Reads reads, Call call, FieldHandle field, FieldType wanted, long fallback);

    /**
     * Reads a float32 or float64 by the call's key, and releases the call.
     *
     * @param reads the reads
     * @param call the call, with its key
     * @param field the field
     * @param wanted the type that the field is read as
     * @param fallback what to answer when absent or null
     * @return the value
     */
    public abstract double real(
            Reads reads, Call call, FieldHandle field, FieldType wanted, double fallback);

    /**
     * Reads a presence by the call's key, and releases the call.
     *
     * @param reads the reads
     * @param call the call, with its key
     * @param field the field
     * @return absent, null or a value
     */
    public abstract Presence presence(Reads reads, Call call, FieldHandle field);

    /**
     * What the second artifact throws for what it is given.
     *
     * @param message what is wrong, and what to do
     * @return an {@code InvalidArgumentException}
     */
    public abstract ForebayException invalid(String message);

    /**
     * What the second artifact throws when a call itself breaks.
     *
     * @param cause what it threw
     * @return an {@code InternalException}
     */
    public abstract ForebayException broken(Throwable cause);
}
