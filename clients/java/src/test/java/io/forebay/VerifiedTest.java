/* Differences between a reader and its node, as forebay.h packs them. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.junit.jupiter.api.Test;

class VerifiedTest {
    private static ByteBuffer packed(long rangesLeft, int differences) {
        ByteBuffer bytes = ByteBuffer.allocate(256).order(ByteOrder.LITTLE_ENDIAN);
        return bytes.putLong(7).putLong(8).putLong(9).putLong(rangesLeft).putInt(differences);
    }

    @Test
    void differencesAreNamedByTheirKeys() {
        ByteBuffer bytes = packed(0, 3);
        for (int what = 1; what <= 3; what++) {
            byte[] key = ("u" + what).getBytes(StandardCharsets.UTF_8);
            bytes.put((byte) what).putInt(1).putInt(key.length).put(key).putInt(0);
        }
        Verified verified = Verified.unpack(5, new Unpacker(bytes.array()));
        List<Verified.Difference> differences =
                List.of(
                        new Verified.Difference(Key.of("u1"), Verified.What.ONLY_HERE),
                        new Verified.Difference(Key.of("u2"), Verified.What.ONLY_THERE),
                        new Verified.Difference(Key.of("u3"), Verified.What.CONTENTS));
        assertEquals(new Verified(5, 7, 8, differences, 9, 0), verified);
        assertFalse(verified.isSame());
    }

    @Test
    void copiesAreTheSameWhereNothingIsLeftToCompare() {
        assertTrue(Verified.unpack(0, new Unpacker(packed(0, 0).array())).isSame());
        assertFalse(Verified.unpack(0, new Unpacker(packed(1, 0).array())).isSame());
    }
}
