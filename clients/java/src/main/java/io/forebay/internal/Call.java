/* The off-heap memory of one call, as the second artifact sees it. */
package io.forebay.internal;

import io.forebay.Key;
import io.forebay.KeyType;
import io.forebay.Keys;
import io.forebay.Reads;

/**
 * The off-heap memory that a call's structs are laid out in, from {@link Calls#take} until {@link
 * #release}. Addresses are good until then. Belongs to one thread.
 */
public interface Call {
    /** Gives the memory back. */
    void release();

    /**
     * Where the call's error goes.
     *
     * @return the address of an fb_error
     */
    long error();

    /**
     * Where a result of up to 8 bytes goes.
     *
     * @param number which of eight
     * @return its address
     */
    long out(int number);

    /**
     * A result.
     *
     * @param number which of eight
     * @return its first 4 bytes
     */
    int outInt(int number);

    /**
     * A result.
     *
     * @param number which of eight
     * @return its 8 bytes
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
     * @param type its type
     * @param bytes where they are
     * @param length how many they are
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
     * @param type their type
     * @param count how many they are
     * @param bytes where their bytes are
     * @param length how many bytes they have
     * @param ends where the end of each is; 0 for int64 keys
     * @return the address of an fb_keys
     */
    long keys(KeyType type, long count, long bytes, long length, long ends);

    /**
     * Writes what the reads wait for.
     *
     * @param reads the reads
     * @return the address of an fb_read; 0 for reads that wait for nothing
     */
    long read(Reads reads);

    /**
     * Memory for the call, at a multiple of 8; it holds whatever was there.
     *
     * @param bytes how much
     * @return its address
     */
    long room(long bytes);

    /**
     * Throws what a status stands for.
     *
     * @param status what a function answered; 0 is good
     */
    void check(int status);
}
