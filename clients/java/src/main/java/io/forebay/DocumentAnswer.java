/* The result for one key of a batch of documents. */
package io.forebay;

import org.jspecify.annotations.Nullable;

/**
 * The result for one key.
 *
 * @param status the status of the key
 * @param document the document; null unless it was found
 */
public record DocumentAnswer(KeyStatus status, @Nullable Document document) {}
