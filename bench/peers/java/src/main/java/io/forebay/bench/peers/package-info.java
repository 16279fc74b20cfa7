/** The workers of bench-index in Java: ours and its peers. */
package io.forebay.bench.peers;
