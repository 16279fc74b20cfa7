/**
 * Interface for {@code forebay-client-segments}. The package is no part of the API: it changes
 * without notice, and does not check its arguments.
 */
@org.jspecify.annotations.NullMarked
package io.forebay.internal;
