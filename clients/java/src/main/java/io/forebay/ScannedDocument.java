/* One document of a scan. */
package io.forebay;

/**
 * One document of a scan.
 *
 * @param key its key, with its partition key where the store declares one
 * @param document the document as it was at its turn
 */
public record ScannedDocument(Key key, Document document) {}
