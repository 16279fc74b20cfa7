/* The result of comparing a reader's copy with its node's. */
package io.forebay;

import java.util.ArrayList;
import java.util.List;

/**
 * The result of comparing a reader's copy of a partition with the shard of its node, at one
 * position.
 *
 * @param partition the partition
 * @param documentsHere live documents of the reader
 * @param documentsThere live documents of the shard
 * @param differences the documents that differ: the first ones, in the order of their keys' bytes
 * @param more number of further differences
 * @param rangesLeft ranges of 4,096 that differ in too many documents, so that no document was
 *     compared
 */
public record Verification(
        int partition,
        long documentsHere,
        long documentsThere,
        List<Difference> differences,
        long more,
        long rangesLeft) {

    /** The kind of a difference. */
    public enum DifferenceKind {
        /** Only the reader has the document. */
        ONLY_HERE,
        /** Only the shard has the document. */
        ONLY_THERE,
        /** Both have the document, with different contents. */
        CONTENTS;

        private static DifferenceKind of(int code) {
            return values()[code - 1];
        }
    }

    /**
     * A document that differs.
     *
     * @param key the key
     * @param kind the kind of the difference
     */
    public record Difference(Key key, DifferenceKind kind) {}

    /**
     * Returns whether both have the same documents.
     *
     * @return false if any document differs
     */
    public boolean isSame() {
        return differences.isEmpty() && rangesLeft == 0;
    }

    static Verification unpack(int partition, Unpacker packed) {
        long here = packed.i64();
        long there = packed.i64();
        long more = packed.i64();
        long rangesLeft = packed.i64();
        int count = packed.i32();
        List<Difference> differences = new ArrayList<>(count);
        for (int place = 0; place < count; place++) {
            DifferenceKind kind = DifferenceKind.of(packed.u8());
            differences.add(new Difference(packed.key(), kind));
        }
        return new Verification(partition, here, there, List.copyOf(differences), more, rangesLeft);
    }
}
