/**
 * What {@code forebay-client-segments} is made of. No part of the API: it changes without notice,
 * and what it takes is not checked.
 */
@org.jspecify.annotations.NullMarked
package io.forebay.internal;
