/** Benchmarks of the Java client, on JMH. */
package io.forebay.bench;
