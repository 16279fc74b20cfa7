/**
 * Reads into memory segments, and by keys that lie in them, for Java 22 and newer. {@link
 * io.forebay.segments.SegmentReads} has them all, over any {@link io.forebay.Reads} of the client.
 */
@org.jspecify.annotations.NullMarked
package io.forebay.segments;
