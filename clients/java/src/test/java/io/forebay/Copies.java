/* The shared copies that remain after a test. */
package io.forebay;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;

/** Shared copies, which a test removes so that the next reader finds none. */
final class Copies {
    private static final int NAME_AT = 1_024;
    private static final int NAME_BYTES_MAX = 1_024;

    private Copies() {}

    /**
     * Removes the copies of the readers of a folder, as a restart of the machine does. Their
     * documents are in shared memory, where each file names the path of its header.
     */
    static void forget(Path folder) {
        Path memory = Path.of("/dev/shm");
        try (DirectoryStream<Path> files = Files.newDirectoryStream(memory, "forebay-*")) {
            for (Path file : files) {
                if (header(file).startsWith(folder.toAbsolutePath())) {
                    Files.deleteIfExists(file);
                }
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static Path header(Path file) throws IOException {
        byte[] name = new byte[NAME_BYTES_MAX];
        try (RandomAccessFile opened = new RandomAccessFile(file.toFile(), "r")) {
            opened.seek(NAME_AT);
            opened.read(name);
        } catch (FileNotFoundException removed) {
            // Other processes remove their files at the same time.
            return Path.of("");
        }
        String names = new String(name, StandardCharsets.UTF_8);
        return Path.of(names.substring(0, names.indexOf(0)));
    }
}
