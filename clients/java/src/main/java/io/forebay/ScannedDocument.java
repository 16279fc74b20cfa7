/* A document of a scan. */
package io.forebay;

/**
 * A document of a scan.
 *
 * @param key the key, with its partition key if the store declares one
 * @param document the document as it was at its turn
 */
public record ScannedDocument(Key key, Document document) {}
