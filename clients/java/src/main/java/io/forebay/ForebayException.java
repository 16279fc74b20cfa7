/*
 * The root of Forebay's exceptions: a code, a message that says what to do next, and the context.
 */
package io.forebay;

import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import org.jspecify.annotations.Nullable;

/**
 * A failure of Forebay. Each code has its own class; catch this class for all of them. The message
 * says what happened and what to do next, and never contains a key or a value.
 */
public abstract class ForebayException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private final transient Failure failure;
    private final ErrorCode code;

    /** The native core's description of a failure. */
    record Failure(
            ErrorCode code,
            String message,
            @Nullable String store,
            OptionalInt partition,
            @Nullable String field,
            OptionalLong keyDigest,
            OptionalLong limit,
            OptionalLong actual,
            long pending) {

        static Failure of(ErrorCode code, String message) {
            OptionalLong none = OptionalLong.empty();
            return new Failure(
                    code, message, null, OptionalInt.empty(), null, none, none, none, 0);
        }

        private String text() {
            StringBuilder text = new StringBuilder(code.label()).append(": ").append(message);
            StringBuilder places = new StringBuilder();
            add(places, "store", store);
            partition.ifPresent(number -> add(places, "partition", Integer.toString(number)));
            add(places, "field", field);
            keyDigest.ifPresent(
                    digest -> add(places, "key digest", String.format("%016x", digest)));
            limit.ifPresent(number -> add(places, "limit", Long.toUnsignedString(number)));
            actual.ifPresent(number -> add(places, "actual", Long.toUnsignedString(number)));
            return places.isEmpty() ? text.toString() : text + " (" + places + ")";
        }

        private static void add(StringBuilder places, String what, @Nullable String value) {
            if (value != null) {
                places.append(places.isEmpty() ? "" : ", ").append(what).append(' ').append(value);
            }
        }
    }

    ForebayException(Failure failure) {
        super(failure.text());
        this.failure = failure;
        this.code = failure.code();
    }

    static ForebayException of(Failure failure) {
        return failure.code().exception(failure);
    }

    static ForebayException of(ErrorCode code, String message) {
        return of(Failure.of(code, message));
    }

    /** Returns the exception for a native call that failed to execute. */
    static ForebayException broken(Throwable cause) {
        ForebayException broken =
                of(ErrorCode.INTERNAL, "a call of the native core failed; report this as a bug");
        broken.initCause(cause);
        return broken;
    }

    /**
     * Returns the code of the failure.
     *
     * @return the code
     */
    public final ErrorCode code() {
        return code;
    }

    /**
     * Returns the store of the failure.
     *
     * @return the name, or empty if none applies
     */
    public final Optional<String> store() {
        return failure == null ? Optional.empty() : Optional.ofNullable(failure.store());
    }

    /**
     * Returns the partition of the failure.
     *
     * @return the number, or empty if none applies
     */
    public final OptionalInt partition() {
        return failure == null ? OptionalInt.empty() : failure.partition();
    }

    /**
     * Returns the field of the failure.
     *
     * @return the name, or empty if none applies
     */
    public final Optional<String> field() {
        return failure == null ? Optional.empty() : Optional.ofNullable(failure.field());
    }

    /**
     * Returns the xxh3 digest of the requested key.
     *
     * @return the digest, or empty if none applies
     */
    public final OptionalLong keyDigest() {
        return failure == null ? OptionalLong.empty() : failure.keyDigest();
    }

    /**
     * Returns the limit that was exceeded.
     *
     * @return the limit, or empty if none applies
     */
    public final OptionalLong limit() {
        return failure == null ? OptionalLong.empty() : failure.limit();
    }

    /**
     * Returns the actual number that exceeded the limit.
     *
     * @return the actual number, or empty if none applies
     */
    public final OptionalLong actual() {
        return failure == null ? OptionalLong.empty() : failure.actual();
    }
}
