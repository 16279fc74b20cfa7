/* Chronicle Map. */
package io.forebay.bench.peers;

import net.openhft.chronicle.map.ChronicleMap;
import net.openhft.chronicle.values.Values;
import net.openhft.chronicle.core.values.IntValue;

/** A map off the heap, in memory alone, from arrays to arrays, with sizes set in advance. */
final class Chronicle implements Subject {
    private final ChronicleMap<byte[], byte[]> map;
    private final int keyBytes;

    Chronicle(Data data) {
        map =
                ChronicleMap.of(byte[].class, byte[].class)
                        .name("bench")
                        .entries(data.entries())
                        .constantKeySizeBySample(data.key(0))
                        .constantValueSizeBySample(data.value(0))
                        .create();
        for (long number = 0; number < data.entries(); number++) {
            map.put(data.key(number), data.value(number));
        }
        keyBytes = data.keyBytes();
    }

    /**
     * Returns the bytes of each entry of a map of 4-byte keys and 32-byte values, in its best form.
     */
    static double bytesPerSmallEntry(long entries) {
        Data data = new Data(entries, 4, 32);
        ChronicleMap<IntValue, byte[]> map =
                ChronicleMap.of(IntValue.class, byte[].class)
                        .name("small")
                        .entries(data.entries())
                        .constantValueSizeBySample(new byte[32])
                        .create();
        IntValue key = Values.newHeapInstance(IntValue.class);
        for (long number = 0; number < data.entries(); number++) {
            key.setValue((int) number);
            map.put(key, data.value(number));
        }
        if (map.longSize() != data.entries()) {
            throw new IllegalStateException("Chronicle holds " + map.longSize());
        }
        double bytes = (double) map.offHeapMemoryUsed() / data.entries();
        map.close();
        return bytes;
    }

    @Override
    public void chain(byte[] key, int steps) {
        for (int step = 0; step < steps; step++) {
            System.arraycopy(map.get(key), 0, key, 0, keyBytes);
        }
    }

    @Override
    public void loop(byte[][] keys, byte[][] values) {
        for (int place = 0; place < keys.length; place++) {
            values[place] = map.get(keys[place]);
        }
    }

    @Override
    public void close() {
        map.close();
    }
}
