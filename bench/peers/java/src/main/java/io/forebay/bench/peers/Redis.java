/* Redis, over the unix socket of a server of this machine. */
package io.forebay.bench.peers;

import java.io.IOException;
import java.net.Socket;
import java.nio.file.Path;
import org.newsclub.net.unix.AFUNIXSocket;
import org.newsclub.net.unix.AFUNIXSocketAddress;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisSocketFactory;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Response;

/** A single connection; a batch is a pipeline. */
final class Redis implements Subject.BatchSubject {
    private final Jedis jedis;
    private final int keyBytes;

    Redis(Data data, Path path) {
        JedisSocketFactory factory = () -> connect(path);
        Connection connection = new Connection(factory, DefaultJedisClientConfig.builder().build());
        jedis = new Jedis(connection);
        jedis.flushAll();
        Pipeline pipeline = jedis.pipelined();
        for (long number = 0; number < data.entries(); number++) {
            pipeline.set(data.key(number), data.value(number));
            if (number % 1_000 == 999) {
                pipeline.sync();
            }
        }
        pipeline.sync();
        keyBytes = data.keyBytes();
    }

    private static Socket connect(Path path) {
        try {
            return AFUNIXSocket.connectTo(AFUNIXSocketAddress.of(path));
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void chain(byte[] key, int steps) {
        for (int step = 0; step < steps; step++) {
            System.arraycopy(jedis.get(key), 0, key, 0, keyBytes);
        }
    }

    @Override
    public void loop(byte[][] keys, byte[][] values) {
        for (int place = 0; place < keys.length; place++) {
            values[place] = jedis.get(keys[place]);
        }
    }

    @Override
    @SuppressWarnings("unchecked")
    public void batch(byte[][] keys, byte[][] values) {
        Response<byte[]>[] answers = new Response[keys.length];
        Pipeline pipeline = jedis.pipelined();
        for (int place = 0; place < keys.length; place++) {
            answers[place] = pipeline.get(keys[place]);
        }
        pipeline.sync();
        for (int place = 0; place < keys.length; place++) {
            values[place] = answers[place].get();
        }
    }

    @Override
    public void close() {
        jedis.close();
    }
}
