/* The implementation of reads, by whatever key. */
package io.forebay;

import io.forebay.internal.Calls;
import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The part of {@link Reads} that calls the native core. A {@link CallBuffer} holds the key of a
 * read of one document, and is released at its end.
 */
abstract class NativeReads {
    static {
        Calls.install(new InternalCalls());
    }

    private static final int VALUE = HeaderConstants.VALUE;

    final long reader;
    final ReadOptions read;

    NativeReads(long reader, ReadOptions read) {
        this.reader = reader;
        this.read = read;
    }

    /** Reads like {@link Reads#getBytes(FieldHandle, Key, byte[])}, by an int64 key. */
    public int getBytes(FieldHandle field, long key, byte[] out) {
        long length = HeapReads.copiedInto(this, field, key, out);
        return length == HeapCalls.FAILED
                ? copiedInto(CallBuffer.with(key), field, out)
                : (int) length;
    }

    /** Reads like {@link Reads#getBytes(FieldHandle, Key, byte[])}, by a string key. */
    public int getBytes(FieldHandle field, String key, byte[] out) {
        return copiedInto(CallBuffer.with(key), field, out);
    }

    /** Reads like {@link Reads#getBytes(FieldHandle, Key, byte[])}, by a bytes key. */
    public int getBytes(FieldHandle field, byte[] key, byte[] out) {
        long length = HeapReads.copiedInto(this, field, KeyType.BYTES, key, out);
        return length == HeapCalls.FAILED
                ? copiedInto(CallBuffer.with(key), field, out)
                : (int) length;
    }

    /** Reads a number into results 0 to 2 of the call; returns its presence. */
    final int scalar(CallBuffer call, FieldHandle field, FieldType wanted) {
        call.check(
                Native.CALLS.readerGetScalar(
                        reader,
                        field.id(),
                        wanted.code(),
                        call.keyAt(),
                        call.read(read),
                        call.out(0),
                        call.error()));
        return call.outInt(0);
    }

    final long integer(CallBuffer call, FieldHandle field, FieldType wanted, long fallback) {
        try {
            return scalar(call, field, wanted) == VALUE ? call.outLong(1) : fallback;
        } finally {
            call.release();
        }
    }

    final double real(CallBuffer call, FieldHandle field, FieldType wanted, double fallback) {
        try {
            return scalar(call, field, wanted) == VALUE ? call.outDouble(2) : fallback;
        } finally {
            call.release();
        }
    }

    final boolean truth(CallBuffer call, FieldHandle field, boolean fallback) {
        return integer(call, field, FieldType.BOOL, fallback ? 1 : 0) != 0;
    }

    final @Nullable Instant instant(CallBuffer call, FieldHandle field) {
        try {
            int presence = scalar(call, field, FieldType.TIMESTAMP);
            return presence == VALUE ? Values.instant(call.outLong(1)) : null;
        } finally {
            call.release();
        }
    }

    static @Nullable String text(byte @Nullable [] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    final byte @Nullable [] copied(FieldHandle field, Key key, FieldType wanted) {
        byte[] found =
                field.type().equals(wanted) && key.partitionKey() == null
                        ? HeapReads.copied(this, field, key.type(), key.bytes())
                        : HeapReads.ELSEWHERE;
        return found == HeapReads.ELSEWHERE
                ? copied(CallBuffer.with(key), field, wanted)
                : found;
    }

    final byte @Nullable [] copied(FieldHandle field, long key, FieldType wanted) {
        byte[] found =
                field.type().equals(wanted)
                        ? HeapReads.copied(this, field, key)
                        : HeapReads.ELSEWHERE;
        return found == HeapReads.ELSEWHERE
                ? copied(CallBuffer.with(key), field, wanted)
                : found;
    }

    final byte @Nullable [] copied(FieldHandle field, byte[] key, FieldType wanted) {
        byte[] found =
                field.type().equals(wanted)
                        ? HeapReads.copied(this, field, KeyType.BYTES, key)
                        : HeapReads.ELSEWHERE;
        return found == HeapReads.ELSEWHERE
                ? copied(CallBuffer.with(key), field, wanted)
                : found;
    }

    final byte @Nullable [] copied(FieldHandle field, String key, FieldType wanted) {
        return copied(CallBuffer.with(key), field, wanted);
    }

    final byte @Nullable [] copied(CallBuffer call, FieldHandle field, FieldType wanted) {
        try {
            if (!field.type().equals(wanted)) {
                throw ForebayException.of(
                        ErrorCode.INVALID_ARGUMENT,
                        "the handle reads a " + field.type() + "; resolve one as " + wanted);
            }
            long readAt = call.read(read);
            CallBuffer.Place room = call.room();
            int capacity = call.roomBytes();
            while (true) {
                int length = bytesInto(call, field, readAt, room.address(), capacity);
                if (length < 0) {
                    return null;
                }
                if (length <= capacity) {
                    field.sawElsewhere(length);
                    byte[] bytes = new byte[length];
                    room.buffer().get(room.at(), bytes);
                    return bytes;
                }
                room = call.allocateDirty(length);
                capacity = length;
            }
        } finally {
            call.release();
        }
    }

    final int copiedInto(CallBuffer call, FieldHandle field, byte[] out) {
        try {
            long readAt = call.read(read);
            int room = call.roomBytes();
            int length = bytesInto(call, field, readAt, call.roomAddress(), room);
            if (length < 0 || length > out.length) {
                return length;
            }
            if (length <= room) {
                call.copyRoom(out, length);
                return length;
            }
            // The value may have grown since; then the length says so.
            CallBuffer.Place place = call.allocateDirty(out.length);
            length = bytesInto(call, field, readAt, place.address(), out.length);
            if (length >= 0 && length <= out.length) {
                place.buffer().get(place.at(), out, 0, length);
            }
            return length;
        } finally {
            call.release();
        }
    }

    final int copiedInto(CallBuffer call, FieldHandle field, ByteBuffer out) {
        try {
            if (out.isReadOnly()) {
                throw ForebayException.of(
                        ErrorCode.INVALID_ARGUMENT,
                        "the buffer is read-only; give a writable buffer");
            }
            long readAt = call.read(read);
            int room = out.remaining();
            if (out.isDirect()) {
                long at = Native.CALLS.addressOf(out) + out.position();
                return bytesInto(call, field, readAt, at, room);
            }
            CallBuffer.Place place = call.allocateDirty(room);
            int length = bytesInto(call, field, readAt, place.address(), room);
            if (length > 0 && length <= room) {
                out.put(out.position(), place.buffer(), place.at(), length);
            }
            return length;
        } finally {
            Reference.reachabilityFence(out);
            call.release();
        }
    }

    private int bytesInto(
            CallBuffer call, FieldHandle field, long readAt, long at, int capacity) {
        call.check(
                Native.CALLS.readerGetBytes(
                        reader,
                        field.id(),
                        call.keyAt(),
                        readAt,
                        at,
                        capacity,
                        call.out(0),
                        call.out(1),
                        call.error()));
        return switch (call.outInt(1)) {
            case VALUE -> Math.toIntExact(call.outLong(0));
            case 1 -> Reads.NULL;
            default -> Reads.ABSENT;
        };
    }

    final Presence presence(CallBuffer call, FieldHandle field) {
        try {
            call.check(
                    Native.CALLS.readerPresence(
                            reader,
                            field.id(),
                            call.keyAt(),
                            call.read(read),
                            call.out(0),
                            call.error()));
            return Presence.of(call.outInt(0));
        } finally {
            call.release();
        }
    }

    final @Nullable Object value(CallBuffer call, FieldHandle field) {
        try {
            call.check(
                    Native.CALLS.readerGetValue(
                            reader,
                            field.id(),
                            call.keyAt(),
                            call.read(read),
                            call.out(0),
                            call.out(2),
                            call.error()));
            byte[] bytes = call.takeBytes(0);
            return call.outInt(2) == VALUE ? Values.decode(field.type(), bytes) : null;
        } finally {
            call.release();
        }
    }

    final @Nullable Document document(CallBuffer call) {
        try {
            call.check(
                    Native.CALLS.readerGetDocument(
                            reader, call.keyAt(), call.read(read), call.out(0), call.error()));
            byte[] packed = call.takeBytes(0);
            return packed.length == 0 ? null : Document.unpack(new Unpacker(packed));
        } finally {
            call.release();
        }
    }

    final PackedValues packed(FieldHandle field, BatchKeys keys) {
        PackedValues found = HeapReads.packed(this, field, keys);
        if (found != null) {
            return found;
        }
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.readerGetMany(
                            reader,
                            field.id(),
                            keys.encode(call),
                            call.read(read),
                            call.out(0),
                            call.error()));
            byte[] values = call.takeBytes(0);
            field.saw(values.length, keys.size());
            return PackedValues.of(
                    values, call.takeBytes(2), call.takeBytes(4), call.takeBytes(6));
        } finally {
            call.release();
        }
    }

    final List<DocumentAnswer> documents(BatchKeys keys) {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.readerGetDocuments(
                            reader,
                            keys.encode(call),
                            call.read(read),
                            call.out(0),
                            call.error()));
            Unpacker packed = new Unpacker(call.takeBytes(0));
            List<DocumentAnswer> answers = new ArrayList<>(keys.size());
            while (packed.hasMore()) {
                KeyStatus status = KeyStatus.of(packed.u8());
                boolean found = status == KeyStatus.FOUND;
                answers.add(new DocumentAnswer(status, found ? Document.unpack(packed) : null));
            }
            return List.copyOf(answers);
        } finally {
            call.release();
        }
    }
}
