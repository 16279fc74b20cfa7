/**
 * Reads into memory segments, and by keys in memory segments, for Java 22 and newer. {@link
 * io.forebay.segments.SegmentReads} has all of them, over any {@link io.forebay.Reads} of the
 * client.
 */
@org.jspecify.annotations.NullMarked
package io.forebay.segments;
