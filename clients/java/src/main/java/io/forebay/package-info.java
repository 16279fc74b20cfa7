/**
 * Forebay's Java client: write once through a durable log, and read in the process that needs the
 * data.
 *
 * <p>{@link io.forebay.ForebayClient} writes and administers; {@link io.forebay.ForebayReader}
 * holds a full copy of a store in this process. Both are safe to share between threads, platform
 * and virtual ones.
 */
@org.jspecify.annotations.NullMarked
package io.forebay;
