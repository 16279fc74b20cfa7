/* A reader's status while a snapshot is fetched, as forebay.h packs it. */
package io.forebay;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.junit.jupiter.api.Test;

class ReaderStatusTest {
    private static Unpacker packed(long fetched, long inAll) {
        ByteBuffer bytes = ByteBuffer.allocate(16).order(ByteOrder.LITTLE_ENDIAN);
        return new Unpacker(bytes.putLong(fetched).putLong(inAll).array());
    }

    @Test
    void fetchedBytesPrecedeTotalBytes() {
        ReaderStatus.SnapshotDownload begun = ReaderStatus.SnapshotDownload.unpack(packed(0, 9));
        assertEquals(new ReaderStatus.SnapshotDownload(0, 9), begun);
        assertEquals(
                new ReaderStatus.SnapshotDownload(5, 9),
                ReaderStatus.SnapshotDownload.unpack(packed(5, 9)));
        assertNull(ReaderStatus.SnapshotDownload.unpack(packed(0, 0)));
    }
}
