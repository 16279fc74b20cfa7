/* A cursor over every document of a reader. */
package io.forebay;

import java.lang.ref.Reference;
import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.NoSuchElementException;

/**
 * A scan of every live document in the partitions that a reader follows, in no order. A document
 * that lives throughout the scan is seen exactly once, as it is at its turn. A document that is
 * created or deleted during the scan may be seen or not; a document that is deleted and created
 * again may be seen twice. A slow scan delays nothing. Belongs to one thread.
 */
public final class DocumentScan implements Iterator<ScannedDocument>, AutoCloseable {
    private static final int BATCH_DOCUMENTS = 256;

    private final NativeId id;
    private final long maxStalenessMs;
    private final ArrayDeque<ScannedDocument> ready = new ArrayDeque<>();
    private boolean ended;

    DocumentScan(long id, long maxStalenessMs) {
        this.id = NativeId.ownedBy(this, id);
        this.maxStalenessMs = maxStalenessMs;
    }

    /**
     * Returns whether there is another document.
     *
     * @return false at the end
     * @throws UnavailableException while the next partition has not caught up; the scan may
     *     continue later
     * @throws ClosedException if the reader or this scan was closed
     */
    @Override
    public boolean hasNext() {
        if (ready.isEmpty() && !ended) {
            fill();
        }
        return !ready.isEmpty();
    }

    @Override
    public ScannedDocument next() {
        if (!hasNext()) {
            throw new NoSuchElementException("the scan has ended");
        }
        return ready.remove();
    }

    private void fill() {
        CallBuffer call = CallBuffer.take();
        try {
            call.check(
                    Native.CALLS.scanNext(
                            id.id(),
                            maxStalenessMs,
                            BATCH_DOCUMENTS,
                            call.out(0),
                            call.out(2),
                            call.error()));
            Unpacker packed = new Unpacker(call.takeBytes(0));
            long count = call.outLong(2);
            ended = count == 0;
            for (long place = 0; place < count; place++) {
                ready.add(new ScannedDocument(packed.key(), Document.unpack(packed)));
            }
        } finally {
            Reference.reachabilityFence(this);
            call.release();
        }
    }

    /** Ends the scan. A second close changes nothing. */
    @Override
    public void close() {
        id.close();
        ready.clear();
    }
}
