/*
 * Off-heap memory for calls, from a bounded pool. A buffer has fixed areas for the data of most
 * calls, so that a read allocates nothing; a call that needs more gets extra blocks.
 *
 * <p>The pool is striped: a thread starts at the stripe of its id and takes a buffer from there or
 * from a near stripe. At most one buffer is in use per thread inside a call, and a virtual thread
 * is pinned to its carrier during the call; the pool therefore needs one buffer per carrier, for
 * any number of virtual threads. A buffer that returns to a full stripe is left to the garbage
 * collector.
 */
package io.forebay;

import io.forebay.internal.Call;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.jspecify.annotations.Nullable;

/** The off-heap memory of one call. */
final class CallBuffer implements Call {
    private static final int BLOCK_BYTES = 16 * 1024;
    private static final int SPARE_BYTES_MAX = 1024 * 1024;
    private static final int STRIPES = stripes();
    /** Neighbouring stripes are on different cache lines. */
    private static final int STRIPE_STEP = 16;
    private static final int PROBES = 4;
    private static final AtomicReferenceArray<@Nullable CallBuffer> POOL =
            new AtomicReferenceArray<>(STRIPES * STRIPE_STEP);

    private static final int ERROR_AT = 0;
    private static final int ERROR_BYTES = HeaderConstants.ERROR_STRUCT_BYTES;
    private static final int OUT_AT = ERROR_AT + ERROR_BYTES;
    private static final int OUT_BYTES = 64;
    private static final int KEY_AT = OUT_AT + OUT_BYTES;
    private static final int KEY_BYTES = HeaderConstants.KEY_STRUCT_BYTES;
    private static final int READ_AT = KEY_AT + KEY_BYTES;
    private static final int READ_BYTES = HeaderConstants.READ_OPTIONS_STRUCT_BYTES;
    private static final int FREE_AT = READ_AT + READ_BYTES;

    private final ByteBuffer block = direct(BLOCK_BYTES);
    private final long address = Native.CALLS.addressOf(block);
    private final List<ByteBuffer> further = new ArrayList<>();
    private int freeAt = FREE_AT;
    /** The largest block that an earlier call has needed, within bounds; it is reused. */
    private @Nullable ByteBuffer spare;

    /** An area of off-heap memory. */
    record Place(ByteBuffer buffer, int at, long address) {}

    private CallBuffer() {}

    static CallBuffer take() {
        int stripe = stripe();
        for (int probe = 0; probe < PROBES; probe++) {
            int place = ((stripe + probe) & (STRIPES - 1)) * STRIPE_STEP;
            CallBuffer found = POOL.getPlain(place) == null ? null : POOL.getAndSet(place, null);
            if (found != null) {
                return found;
            }
        }
        return new CallBuffer();
    }

    /** Takes a buffer and writes a call's one key, at {@link #keyAt}. */
    static CallBuffer with(Key key) {
        CallBuffer call = take();
        call.key(key);
        return call;
    }

    /** Takes a buffer and writes an int64 key; allocates nothing. */
    static CallBuffer with(long key) {
        CallBuffer call = take();
        call.key(key);
        return call;
    }

    /**
     * Takes a buffer and writes a string key; allocates nothing for keys below 5,000 characters.
     */
    static CallBuffer with(String key) {
        CallBuffer call = take();
        try {
            call.key(key);
            return call;
        } catch (ForebayException noText) {
            call.release();
            throw noText;
        }
    }

    /** Takes a buffer and writes a bytes key; allocates nothing for keys below 15 KiB. */
    static CallBuffer with(byte[] key) {
        CallBuffer call = take();
        call.key(key);
        return call;
    }

    @Override
    public void release() {
        freeAt = FREE_AT;
        keepLargest();
        int stripe = stripe();
        for (int probe = 0; probe < PROBES; probe++) {
            int place = ((stripe + probe) & (STRIPES - 1)) * STRIPE_STEP;
            if (POOL.getPlain(place) == null && POOL.compareAndSet(place, null, this)) {
                return;
            }
        }
    }

    private void keepLargest() {
        for (int place = 0; place < further.size(); place++) {
            ByteBuffer buffer = further.get(place);
            int held = spare == null ? 0 : spare.capacity();
            if (buffer.capacity() > held && buffer.capacity() <= SPARE_BYTES_MAX) {
                spare = buffer;
            }
        }
        further.clear();
    }

    @SuppressWarnings("deprecation")
    private static int stripe() {
        long id = Thread.currentThread().getId();
        return (int) (id ^ (id >>> 16)) & (STRIPES - 1);
    }

    private static int stripes() {
        int wanted = Math.min(256, 2 * Runtime.getRuntime().availableProcessors());
        return Math.max(4, Integer.highestOneBit(2 * wanted - 1));
    }

    private static ByteBuffer direct(int bytes) {
        return ByteBuffer.allocateDirect(bytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    @Override
    public long error() {
        return address + ERROR_AT;
    }

    /** Returns the address of the n-th of eight results, of 8 bytes each. */
    @Override
    public long out(int number) {
        return address + OUT_AT + 8L * number;
    }

    @Override
    public int outInt(int number) {
        return block.getInt(OUT_AT + 8 * number);
    }

    @Override
    public long outLong(int number) {
        return block.getLong(OUT_AT + 8 * number);
    }

    double outDouble(int number) {
        return block.getDouble(OUT_AT + 8 * number);
    }

    /** Allocates zeroed memory for a call, at a multiple of 8. */
    Place allocate(long bytes) {
        Place place = allocateDirty(bytes);
        for (int at = place.at(); at < place.at() + bytes; at += 8) {
            place.buffer().putLong(at, 0);
        }
        return place;
    }

    /** Allocates memory for a call, at a multiple of 8, without clearing it. */
    Place allocateDirty(long bytes) {
        long rounded = (bytes + 7) & ~7L;
        if (rounded > Integer.MAX_VALUE - 64) {
            throw ForebayException.of(
                    ErrorCode.LIMIT_EXCEEDED, "the data of the call exceeds 2 GiB; split the call");
        }
        int needed = (int) rounded;
        if (needed <= BLOCK_BYTES - freeAt) {
            Place place = new Place(block, freeAt, address + freeAt);
            freeAt += needed;
            return place;
        }
        ByteBuffer buffer = spare;
        if (buffer != null && buffer.capacity() >= needed) {
            spare = null;
        } else {
            buffer = direct(needed);
        }
        further.add(buffer);
        return new Place(buffer, 0, Native.CALLS.addressOf(buffer));
    }

    /** Returns the free space of the first block, for the result of a call. */
    Place room() {
        return new Place(block, freeAt, address + freeAt);
    }

    /** Returns the address of {@link #room}. */
    long roomAddress() {
        return address + freeAt;
    }

    /** Copies the start of {@link #room} to the start of an array. */
    void copyRoom(byte[] out, int length) {
        block.get(freeAt, out, 0, length);
    }

    int roomBytes() {
        return BLOCK_BYTES - freeAt;
    }

    /** Copies bytes into the buffer; returns their address. */
    long put(byte[] bytes) {
        if (bytes.length <= BLOCK_BYTES - freeAt) {
            int at = freeAt;
            block.put(at, bytes);
            freeAt = Math.min(BLOCK_BYTES, (at + bytes.length + 7) & ~7);
            return address + at;
        }
        Place place = allocateDirty(bytes.length);
        place.buffer().put(place.at(), bytes);
        return place.address();
    }

    /** Writes an fb_text of these bytes. */
    void text(ByteBuffer buffer, int at, byte[] bytes) {
        buffer.putLong(at, put(bytes));
        buffer.putLong(at + 8, bytes.length);
    }

    void text(ByteBuffer buffer, int at, String text) {
        text(buffer, at, Text.utf8(text));
    }

    /** Writes an fb_key. */
    void key(ByteBuffer buffer, int at, Key key) {
        Key partitionKey = key.partitionKey();
        buffer.putInt(at, key.type().code());
        text(buffer, at + 8, key.bytes());
        buffer.putInt(at + 4, partitionKey == null ? 0 : partitionKey.type().code());
        text(buffer, at + 24, partitionKey == null ? Text.NO_BYTES : partitionKey.bytes());
    }

    /** Writes the call's one key; returns its address. */
    @Override
    public long key(Key key) {
        key(block, KEY_AT, key);
        return keyAt();
    }

    /** Writes the call's one key, an int64; returns its address. */
    @Override
    public long key(long key) {
        int at = freeAt;
        block.putLong(at, key);
        freeAt += Long.BYTES;
        return key(KeyType.INT64, address + at, Long.BYTES);
    }

    /** Writes the call's one key, a string; returns its address. */
    @Override
    public long key(String key) {
        if (!Text.fits(key, BLOCK_BYTES - freeAt)) {
            byte[] bytes = Text.utf8(key);
            return key(KeyType.STRING, put(bytes), bytes.length);
        }
        int at = freeAt;
        int end = Text.utf8(key, block, at);
        freeAt = Math.min(BLOCK_BYTES, (end + 7) & ~7);
        return key(KeyType.STRING, address + at, end - at);
    }

    /** Writes the call's one key, of bytes; returns its address. */
    @Override
    public long key(byte[] key) {
        return key(KeyType.BYTES, put(key), key.length);
    }

    @Override
    public long key(KeyType type, long bytes, long length) {
        block.putInt(KEY_AT, type.code());
        block.putInt(KEY_AT + 4, 0);
        block.putLong(KEY_AT + 8, bytes);
        block.putLong(KEY_AT + 16, length);
        block.putLong(KEY_AT + 24, 0);
        block.putLong(KEY_AT + 32, 0);
        return keyAt();
    }

    /** Returns the address of the call's one key. */
    long keyAt() {
        return address + KEY_AT;
    }

    @Override
    public long keys(Keys keys) {
        return keys.encode(this);
    }

    @Override
    public long keys(KeyType type, long count, long bytes, long length, long ends) {
        Place place = allocate(BatchKeys.BYTES);
        place.buffer().putInt(place.at(), type.code());
        place.buffer().putLong(place.at() + 8, count);
        place.buffer().putLong(place.at() + 16, bytes);
        place.buffer().putLong(place.at() + 24, length);
        place.buffer().putLong(place.at() + 32, ends);
        return place.address();
    }

    @Override
    public long read(Reads reads) {
        return read(reads.read);
    }

    @Override
    public long room(long bytes) {
        return allocateDirty(bytes).address();
    }

    /** Writes the wait of a read; returns its address, or 0 for a local read. */
    long read(ReadOptions read) {
        if (read.isLocal()) {
            return 0;
        }
        block.putInt(READ_AT, read.waitCode());
        block.putInt(READ_AT + 4, 0);
        block.putLong(READ_AT + 8, read.timeoutMs());
        block.putLong(READ_AT + 16, read.maxStalenessMs());
        text(block, READ_AT + 24, read.tokenBytes());
        return address + READ_AT;
    }

    /** Throws the exception of a status; 0 is success. */
    @Override
    public void check(int status) {
        if (status != 0) {
            throw ForebayException.of(failure(block, ERROR_AT, error()));
        }
    }

    /** Reads and frees an fb_error. */
    ForebayException.Failure failure(ByteBuffer buffer, int at, long errorAddress) {
        int applies = buffer.getInt(at + 4);
        ForebayException.Failure failure =
                new ForebayException.Failure(
                        ErrorCode.of(buffer.getInt(at)),
                        text(buffer, at + 48),
                        optionalText(buffer, at + 64),
                        (applies & HeaderConstants.HAS_PARTITION) != 0
                                ? OptionalInt.of(buffer.getInt(at + 8))
                                : OptionalInt.empty(),
                        optionalText(buffer, at + 80),
                        number(applies & HeaderConstants.HAS_KEY_DIGEST, buffer, at + 16),
                        number(applies & HeaderConstants.HAS_LIMIT, buffer, at + 24),
                        number(applies & HeaderConstants.HAS_ACTUAL, buffer, at + 32),
                        buffer.getLong(at + 40));
        Native.CALLS.freeError(errorAddress);
        return failure;
    }

    private static OptionalLong number(int applies, ByteBuffer buffer, int at) {
        return applies == 0 ? OptionalLong.empty() : OptionalLong.of(buffer.getLong(at));
    }

    private static @Nullable String optionalText(ByteBuffer buffer, int at) {
        return buffer.getLong(at + 8) == 0 ? null : text(buffer, at);
    }

    private static String text(ByteBuffer buffer, int at) {
        byte[] bytes = copy(buffer.getLong(at), buffer.getLong(at + 8));
        return new String(bytes, StandardCharsets.UTF_8);
    }

    /** Copies the fb_bytes of results n and n + 1 and frees them. */
    byte[] takeBytes(int number) {
        byte[] bytes = copy(outLong(number), outLong(number + 1));
        Native.CALLS.freeBytes(out(number));
        return bytes;
    }

    /** Copies native bytes onto the heap. */
    static byte[] copy(long address, long length) {
        if (length == 0) {
            return Text.NO_BYTES;
        }
        byte[] bytes =
                length > Integer.MAX_VALUE - 64
                        ? null
                        : Native.CALLS.bytesAt(address, (int) length);
        if (bytes == null) {
            throw ForebayException.of(
                    ErrorCode.LIMIT_EXCEEDED, "the result exceeds the buffer; read less at a time");
        }
        return bytes;
    }
}
