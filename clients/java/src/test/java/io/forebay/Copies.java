/* The shared copies that a test leaves behind. */
package io.forebay;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;

/** Copies that are there for the next reader, of which a test has none. */
final class Copies {
    private static final int NAME_AT = 1_024;
    private static final int NAME_BYTES_MAX = 1_024;

    private Copies() {}

    /**
     * Removes those of the readers below a folder, as a restart of the machine does. Their
     * documents lie in shared memory, where each file names the header that leads to it.
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
            // Other processes remove theirs meanwhile.
            return Path.of("");
        }
        String names = new String(name, StandardCharsets.UTF_8);
        return Path.of(names.substring(0, names.indexOf(0)));
    }
}
