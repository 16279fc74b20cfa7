/* Finds, loads and checks the native library, once per process. */
package io.forebay;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;

/** The native core of this process. */
final class Native {
    /** Names the library's file; without it the library is taken out of the jar. */
    static final String PATH_PROPERTY = "forebay.native.path";

    /** {@code jni} keeps to JNI also where foreign functions are there. */
    static final String CROSSING_PROPERTY = "forebay.native.crossing";

    private static final int FOREIGN_FEATURE = 22;

    static final NativeCalls CALLS = load();

    private Native() {}

    private static NativeCalls load() {
        String path = System.getProperty(PATH_PROPERTY);
        if (path == null) {
            loadPacked();
        } else {
            System.load(Path.of(path).toAbsolutePath().toString());
        }
        NativeCalls calls = crossing();
        if (calls.version() != NativeCalls.VERSION) {
            throw ForebayException.of(
                    ErrorCode.UPGRADE_NEEDED,
                    "the native library speaks ABI "
                            + calls.version()
                            + ", this package "
                            + NativeCalls.VERSION
                            + "; take both from one release");
        }
        return calls;
    }

    /** Foreign functions, where this Java and this jar have them; else JNI. */
    private static NativeCalls crossing() {
        boolean isJni = "jni".equals(System.getProperty(CROSSING_PROPERTY));
        if (isJni || Runtime.version().feature() < FOREIGN_FEATURE) {
            return new JniCalls();
        }
        try {
            Class<?> foreign = Class.forName(Native.class.getPackageName() + ".ForeignCalls");
            return (NativeCalls) foreign.getDeclaredConstructor().newInstance();
        } catch (ClassNotFoundException leftOut) {
            return new JniCalls();
        } catch (ReflectiveOperationException broken) {
            throw new LinkageError("the crossing by foreign functions cannot be used", broken);
        }
    }

    /** Loads the jar's own library, from a file that is gone again once it is loaded. */
    private static void loadPacked() {
        String system = System.getProperty("os.name").toLowerCase(Locale.ROOT);
        String machine = System.getProperty("os.arch").toLowerCase(Locale.ROOT);
        String place = "/io/forebay/native/" + system + "-" + machine + "/libforebay_ffi.so";
        try (InputStream packed = Native.class.getResourceAsStream(place)) {
            if (packed == null) {
                throw ForebayException.of(
                        ErrorCode.UNSUPPORTED,
                        "the jar has no "
                                + place
                                + "; build clients/c and name its library by -D"
                                + PATH_PROPERTY);
            }
            Path file = Files.createTempFile("forebay", ".so");
            try {
                Files.copy(packed, file, StandardCopyOption.REPLACE_EXISTING);
                System.load(file.toString());
            } finally {
                Files.delete(file);
            }
        } catch (IOException error) {
            throw ForebayException.of(
                    ErrorCode.UNAVAILABLE,
                    "cannot unpack the native library ("
                            + error.getMessage()
                            + "); name its file by -D"
                            + PATH_PROPERTY);
        }
    }
}
