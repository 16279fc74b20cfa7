/* The answer about one key of a batch of documents. */
package io.forebay;

import org.jspecify.annotations.Nullable;

/**
 * The answer about one key.
 *
 * @param status what became of the key
 * @param document its document; null unless it was found
 */
public record DocumentAnswer(KeyStatus status, @Nullable Document document) {}
