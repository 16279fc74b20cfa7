/* What came of comparing a reader's copy with its node's. */
package io.forebay;

import java.util.ArrayList;
import java.util.List;

/**
 * What came of comparing the copy of a partition that a reader answers from with the shard of its
 * node, at one position.
 *
 * @param partition the partition
 * @param documentsHere live documents of the reader
 * @param documentsThere live documents of the shard
 * @param differences the documents that are not the same: the first ones, by their keys' bytes
 * @param more how many more were found
 * @param rangesLeft ranges of 4,096 that differ, and of which no document was compared: too many
 *     are in them
 */
public record Verified(
        int partition,
        long documentsHere,
        long documentsThere,
        List<Difference> differences,
        long more,
        long rangesLeft) {

    /** How a document differs. */
    public enum What {
        /** The reader alone has it. */
        ONLY_HERE,
        /** The shard alone has it. */
        ONLY_THERE,
        /** Both have it, with other contents. */
        CONTENTS;

        private static What of(int code) {
            return values()[code - 1];
        }
    }

    /**
     * A document that is not the same.
     *
     * @param key its key
     * @param what how it differs
     */
    public record Difference(Key key, What what) {}

    /**
     * Whether both hold the same documents.
     *
     * @return false where any differs
     */
    public boolean isSame() {
        return differences.isEmpty() && rangesLeft == 0;
    }

    static Verified unpack(int partition, Unpacker packed) {
        long here = packed.i64();
        long there = packed.i64();
        long more = packed.i64();
        long rangesLeft = packed.i64();
        int count = packed.i32();
        List<Difference> differences = new ArrayList<>(count);
        for (int place = 0; place < count; place++) {
            What what = What.of(packed.u8());
            differences.add(new Difference(packed.key(), what));
        }
        return new Verified(partition, here, there, List.copyOf(differences), more, rangesLeft);
    }
}
