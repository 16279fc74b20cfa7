/* The interface of the client for its second artifact. */
package io.forebay.internal;

import io.forebay.FieldHandle;
import io.forebay.FieldType;
import io.forebay.ForebayException;
import io.forebay.GatherPlan;
import io.forebay.Presence;
import io.forebay.Reads;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** The functions of the client that its second artifact may use. */
public abstract class Calls {
    /** Number of fb_reader_get_bytes. */
    public static final int GET_BYTES = 0;

    /** Number of fb_reader_get_many_into. */
    public static final int GET_MANY = 1;

    /** Number of fb_reader_gather_f32; the numbers of f64 and i64 follow. */
    public static final int GATHER = 2;

    private static volatile @Nullable Calls only;

    /** Constructor for the client alone. */
    protected Calls() {}

    /**
     * Installs the client's calls, once.
     *
     * @param calls the client's own
     */
    public static synchronized void install(Calls calls) {
        if (only != null) {
            throw new IllegalStateException("the calls of the client are already installed");
        }
        only = calls;
    }

    /**
     * Returns the client's calls; they are installed before the first reader exists.
     *
     * @return the calls
     */
    public static Calls get() {
        return Objects.requireNonNull(only, "no reader exists yet; open a reader first");
    }

    /**
     * Returns the address of a function of the native core.
     *
     * @param number a constant of this class
     * @return the address
     */
    public abstract long function(int number);

    /**
     * Takes memory for a call.
     *
     * @return the memory; release it
     */
    public abstract Call take();

    /**
     * Returns the id of a reader.
     *
     * @param reads reads of the reader
     * @return the id
     */
    public abstract long idOf(Reads reads);

    /**
     * Returns the id of a field.
     *
     * @param field the field
     * @return the id
     */
    public abstract long idOf(FieldHandle field);

    /**
     * Returns the id of a plan.
     *
     * @param plan the plan, which outlives the use of its id
     * @return the id
     */
    public abstract long idOf(GatherPlan plan);

    /**
     * Returns the type of a plan's cells.
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
     * @param fallback the result if absent or null
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
     * @param fallback the result if absent or null
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
     * Returns the exception of the second artifact for an invalid argument.
     *
     * @param message the problem, and what to do
     * @return an {@code InvalidArgumentException}
     */
    public abstract ForebayException invalid(String message);

    /**
     * Returns the exception of the second artifact for a native call that failed to execute.
     *
     * @param cause the exception of the call
     * @return an {@code InternalException}
     */
    public abstract ForebayException broken(Throwable cause);
}
