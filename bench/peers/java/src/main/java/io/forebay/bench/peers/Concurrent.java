/* The JDK's own map. */
package io.forebay.bench.peers;

import java.util.Arrays;
import java.util.concurrent.ConcurrentHashMap;

/** A ConcurrentHashMap, which returns references and copies nothing. */
final class Concurrent implements Subject {
    private static final class Name {
        private final byte[] bytes;
        private final int hash;

        Name(byte[] bytes) {
            this.bytes = bytes;
            this.hash = Arrays.hashCode(bytes);
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Name name && Arrays.equals(bytes, name.bytes);
        }

        @Override
        public int hashCode() {
            return hash;
        }
    }

    private final ConcurrentHashMap<Name, byte[]> map;
    private final int keyBytes;

    Concurrent(Data data) {
        map = new ConcurrentHashMap<>((int) Math.min(data.entries() * 2, 1 << 30));
        for (long number = 0; number < data.entries(); number++) {
            map.put(new Name(data.key(number)), data.value(number));
        }
        keyBytes = data.keyBytes();
    }

    @Override
    public void chain(byte[] key, int steps) {
        for (int step = 0; step < steps; step++) {
            System.arraycopy(map.get(new Name(key)), 0, key, 0, keyBytes);
        }
    }

    @Override
    public void loop(byte[][] keys, byte[][] values) {
        for (int place = 0; place < keys.length; place++) {
            values[place] = map.get(new Name(keys[place]));
        }
    }
}
