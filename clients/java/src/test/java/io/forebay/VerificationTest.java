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

class VerificationTest {
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
        Verification verified = Verification.unpack(5, new Unpacker(bytes.array()));
        List<Verification.Difference> differences =
                List.of(
                        new Verification.Difference(
                                Key.of("u1"), Verification.DifferenceKind.ONLY_HERE),
                        new Verification.Difference(
                                Key.of("u2"), Verification.DifferenceKind.ONLY_THERE),
                        new Verification.Difference(
                                Key.of("u3"), Verification.DifferenceKind.CONTENTS));
        assertEquals(new Verification(5, 7, 8, differences, 9, 0), verified);
        assertFalse(verified.isSame());
    }

    @Test
    void copiesAreEqualOnlyIfNoRangeIsLeftToCompare() {
        assertTrue(Verification.unpack(0, new Unpacker(packed(0, 0).array())).isSame());
        assertFalse(Verification.unpack(0, new Unpacker(packed(1, 0).array())).isSame());
    }
}
