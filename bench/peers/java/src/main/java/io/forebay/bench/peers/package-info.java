/** The workers of bench-index in Java: Forebay and its peers. */
package io.forebay.bench.peers;
