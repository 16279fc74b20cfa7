/* The root of Forebay's exceptions: a code, a message that says what to do next, and where. */
package io.forebay;

import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import org.jspecify.annotations.Nullable;

/**
 * A failure of Forebay. Each code has a class of its own; catch this one for all of them. Its
 * message says what happened and what to do next, and never shows a key or a value.
 */
public abstract class ForebayException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    private final transient Failure failure;
    private final ErrorCode code;

    /** What the native core tells of a failure. */
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
        return switch (failure.code()) {
            case INVALID_ARGUMENT -> new InvalidArgumentException(failure);
            case NOT_FOUND -> new NotFoundException(failure);
            case CONFLICT -> new ConflictException(failure);
            case UNAVAILABLE -> new UnavailableException(failure);
            case DEADLINE_EXCEEDED -> new DeadlineExceededException(failure);
            case UNKNOWN_OUTCOME -> new UnknownOutcomeException(failure);
            case LIMIT_EXCEEDED -> new LimitExceededException(failure);
            case STALE -> new StaleException(failure);
            case TOKEN_LOST -> new TokenLostException(failure);
            case CORRUPT -> new CorruptException(failure);
            case UNSUPPORTED -> new UnsupportedException(failure);
            case UPGRADE_NEEDED -> new UpgradeNeededException(failure);
            case CLOSED -> new ClosedException(failure);
            case UNAUTHENTICATED -> new UnauthenticatedException(failure);
            case PERMISSION_DENIED -> new PermissionDeniedException(failure);
            case INTERNAL -> new InternalException(failure);
        };
    }

    static ForebayException of(ErrorCode code, String message) {
        return of(Failure.of(code, message));
    }

    /** A crossing that failed by itself. */
    static ForebayException broken(Throwable cause) {
        ForebayException broken =
                of(ErrorCode.INTERNAL, "a call of the native core broke; report it");
        broken.initCause(cause);
        return broken;
    }

    /**
     * The code of the failure.
     *
     * @return the code
     */
    public final ErrorCode code() {
        return code;
    }

    /**
     * The store where it happened.
     *
     * @return its name, or empty where none applies
     */
    public final Optional<String> store() {
        return failure == null ? Optional.empty() : Optional.ofNullable(failure.store());
    }

    /**
     * The partition where it happened.
     *
     * @return its number, or empty where none applies
     */
    public final OptionalInt partition() {
        return failure == null ? OptionalInt.empty() : failure.partition();
    }

    /**
     * The field where it happened.
     *
     * @return its name, or empty where none applies
     */
    public final Optional<String> field() {
        return failure == null ? Optional.empty() : Optional.ofNullable(failure.field());
    }

    /**
     * The xxh3 digest of the key that was asked for.
     *
     * @return the digest, or empty where none applies
     */
    public final OptionalLong keyDigest() {
        return failure == null ? OptionalLong.empty() : failure.keyDigest();
    }

    /**
     * The limit that was passed.
     *
     * @return the limit, or empty where none applies
     */
    public final OptionalLong limit() {
        return failure == null ? OptionalLong.empty() : failure.limit();
    }

    /**
     * What was sent or found instead of the limit.
     *
     * @return the actual number, or empty where none applies
     */
    public final OptionalLong actual() {
        return failure == null ? OptionalLong.empty() : failure.actual();
    }
}
