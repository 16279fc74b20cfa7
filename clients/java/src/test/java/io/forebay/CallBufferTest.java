/* The pool of off-heap memory, and exact conversions of values. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class CallBufferTest {
    @Test
    void bufferInUseIsNotTakenAgain() {
        CallBuffer one = CallBuffer.take();
        CallBuffer two = CallBuffer.take();
        assertNotSame(one, two);
        one.release();
        assertSame(one, CallBuffer.take());
        one.release();
        two.release();
    }

    @Test
    void structsAreZeroInReusedMemory() {
        CallBuffer call = CallBuffer.take();
        for (int round = 0; round < 2; round++) {
            for (int bytes : new int[] {40, 100_000}) {
                CallBuffer.Place place = call.allocate(bytes);
                assertEquals(0, place.address() % 8);
                for (int at = 0; at < bytes; at++) {
                    assertEquals(0, place.buffer().get(place.at() + at));
                    place.buffer().put(place.at() + at, (byte) 1);
                }
            }
            call.release();
            assertSame(call, CallBuffer.take());
        }
        call.release();
    }

    @Test
    void halvesWidenExactly() {
        assertEquals(1.0f, Values.half((short) 0x3c00));
        assertEquals(-65504f, Values.half((short) 0xfbff));
        assertEquals(0x1p-24f, Values.half((short) 1));
        assertEquals(0x1.ff8p-15f, Values.half((short) 0x3ff));
        assertEquals(Float.NEGATIVE_INFINITY, Values.half((short) 0xfc00));
        assertTrue(Float.isNaN(Values.half((short) 0x7e00)));
        int minusZero = Float.floatToRawIntBits(Values.half((short) 0x8000));
        assertEquals(Float.floatToRawIntBits(-0.0f), minusZero);
    }
}
