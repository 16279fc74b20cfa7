/* The data of bench-index, as bench/index/src/data.rs generates it. */
package io.forebay.bench.peers;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.Arrays;

/**
 * Documents that name each other: the value of one begins with the key of the next.
 *
 * @param entries the number of documents
 * @param keyBytes bytes of each key: 16 (the number and its hash), or 4 (the number)
 * @param valueBytes bytes of each value
 */
record Data(long entries, int keyBytes, int valueBytes) {
    private static final long STEP_BY = 618_033_981L;
    private static final long STEP_MORE = 7_309_231L;
    private static final VarHandle LONGS =
            MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);

    static long mix(long number) {
        long hash = number + 0x9e3779b97f4a7c15L;
        hash = (hash ^ hash >>> 30) * 0xbf58476d1ce4e5b9L;
        hash = (hash ^ hash >>> 27) * 0x94d049bb133111ebL;
        return hash ^ hash >>> 31;
    }

    long next(long number) {
        return (number * STEP_BY + STEP_MORE) % entries;
    }

    long after(long number, long steps) {
        long at = number;
        for (long step = 0; step < steps; step++) {
            at = next(at);
        }
        return at;
    }

    byte[] key(long number) {
        byte[] key = new byte[16];
        LONGS.set(key, 0, number);
        LONGS.set(key, 8, mix(number));
        return keyBytes == 16 ? key : Arrays.copyOf(key, keyBytes);
    }

    byte[] value(long number) {
        byte[] value = new byte[Math.max(valueBytes, 24) + 8];
        System.arraycopy(key(next(number)), 0, value, 0, keyBytes);
        long state = mix(number);
        for (int at = keyBytes; at < valueBytes; at += 8) {
            state = mix(state);
            LONGS.set(value, at, state);
        }
        return Arrays.copyOf(value, valueBytes);
    }

    long number(byte[] key) {
        byte[] number = Arrays.copyOf(Arrays.copyOf(key, Math.min(keyBytes, 8)), 8);
        return (long) LONGS.get(number, 0);
    }

    /** Compares the data with the vectors of the other languages. */
    static void check() {
        Data data = new Data(1_000_000, 16, 50);
        String vector =
                "ac3c0500000000004d1697d0f350a3451e61397408ab415ec3868d6df402"
                        + "8ab15649eed9dd9581e2e5c8bef81a3d8c346c26";
        String made = java.util.HexFormat.of().formatHex(data.value(1));
        if (!made.equals(vector)) {
            throw new IllegalStateException(
                    "the data differs from the other programs' data: " + made);
        }
    }
}
