/* The off-heap memory of one call, for the second artifact. */
package io.forebay.internal;

import io.forebay.Key;
import io.forebay.KeyType;
import io.forebay.Keys;
import io.forebay.Reads;

/**
 * The off-heap memory that holds a call's structs, from {@link Calls#take} until {@link #release}.
 * Addresses are valid until the release. Belongs to one thread.
 */
public interface Call {
    /** Releases the memory. */
    void release();

    /**
     * Returns the address of the call's error.
     *
     * @return the address of an fb_error
     */
    long error();

    /**
     * Returns the address of a result of up to 8 bytes.
     *
     * @param number the number of the result, one of eight
     * @return the address
     */
    long out(int number);

    /**
     * Returns a result of 4 bytes.
     *
     * @param number the number of the result, one of eight
     * @return the first 4 bytes
     */
    int outInt(int number);

    /**
     * Returns a result of 8 bytes.
     *
     * @param number the number of the result, one of eight
     * @return the 8 bytes
     */
    long outLong(int number);

    /**
     * Writes the call's one key.
     *
     * @param key the key
     * @return the address of an fb_key
     */
    long key(Key key);

    /**
     * Writes the call's one key.
     *
     * @param key an int64 key
     * @return the address of an fb_key
     */
    long key(long key);

    /**
     * Writes the call's one key.
     *
     * @param key a string key
     * @return the address of an fb_key
     */
    long key(String key);

    /**
     * Writes the call's one key.
     *
     * @param key a bytes key
     * @return the address of an fb_key
     */
    long key(byte[] key);

    /**
     * Writes the call's one key, whose bytes are in native memory.
     *
     * @param type the key's type
     * @param bytes the address of the bytes
     * @param length the number of bytes
     * @return the address of an fb_key
     */
    long key(KeyType type, long bytes, long length);

    /**
     * Writes the keys of a batch.
     *
     * @param keys the keys
     * @return the address of an fb_keys
     */
    long keys(Keys keys);

    /**
     * Writes the keys of a batch, whose bytes are in native memory.
     *
     * @param type the keys' type
     * @param count the number of keys
     * @param bytes the address of the keys' bytes
     * @param length the number of bytes
     * @param ends the address of the keys' ends; 0 for int64 keys
     * @return the address of an fb_keys
     */
    long keys(KeyType type, long count, long bytes, long length, long ends);

    /**
     * Writes the wait of reads.
     *
     * @param reads the reads
     * @return the address of an fb_read_options; 0 for reads that wait for nothing
     */
    long read(Reads reads);

    /**
     * Allocates memory for the call, at a multiple of 8, without clearing it.
     *
     * @param bytes the size
     * @return the address
     */
    long room(long bytes);

    /**
     * Throws the exception of a status.
     *
     * @param status the result of a function; 0 is success
     */
    void check(int status);
}
