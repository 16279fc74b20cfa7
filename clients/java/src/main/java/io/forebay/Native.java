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
    /**
     * Property with the library's file; if it is not set, the library is extracted from the jar.
     */
    static final String PATH_PROPERTY = "forebay.native.path";

    /**
     * Property that selects JNI with the value {@code jni}, even if foreign functions are
     * available.
     */
    static final String CROSSING_PROPERTY = "forebay.native.crossing";

    private static final int FOREIGN_FEATURE = 22;

    /** Set while the library is loaded, before {@link #CALLS} is. */
    private static String library = "";

    private static String reason = "";

    static final NativeCalls CALLS = load();

    private Native() {}

    /** Returns which library is loaded, and how Java calls it. */
    static NativeInfo info() {
        String crossing = CALLS instanceof JniCalls ? "jni" : "foreign functions";
        return new NativeInfo(crossing, reason, library, CALLS.version(), platform());
    }

    private static String platform() {
        String system = System.getProperty("os.name").toLowerCase(Locale.ROOT);
        return system + "-" + System.getProperty("os.arch").toLowerCase(Locale.ROOT);
    }

    private static NativeCalls load() {
        String path = System.getProperty(PATH_PROPERTY);
        if (path == null) {
            loadPacked();
        } else {
            library = Path.of(path).toAbsolutePath().toString();
            loadFile(library);
        }
        NativeCalls calls = crossing();
        requireVersion(calls.version());
        return calls;
    }

    /** Refuses a library of another release, before any other call. */
    static void requireVersion(int found) {
        if (found != NativeCalls.VERSION) {
            throw ForebayException.of(
                    ErrorCode.UPGRADE_NEEDED,
                    library
                            + " speaks ABI "
                            + found
                            + ", this package "
                            + NativeCalls.VERSION
                            + "; take both from one release");
        }
    }

    /** Returns foreign functions if this Java and this jar have them; else JNI. */
    private static NativeCalls crossing() {
        if ("jni".equals(System.getProperty(CROSSING_PROPERTY))) {
            reason = "-D" + CROSSING_PROPERTY + "=jni asks for it";
            return new JniCalls();
        }
        if (Runtime.version().feature() < FOREIGN_FEATURE) {
            reason = "Java " + Runtime.version().feature() + " is older than " + FOREIGN_FEATURE;
            return new JniCalls();
        }
        reason = "Java " + Runtime.version().feature() + " and this jar have foreign functions";
        try {
            Class<?> foreign = Class.forName(Native.class.getPackageName() + ".ForeignCalls");
            return (NativeCalls) foreign.getDeclaredConstructor().newInstance();
        } catch (ClassNotFoundException leftOut) {
            reason = "this jar was built without foreign functions";
            return new JniCalls();
        } catch (ReflectiveOperationException broken) {
            throw new LinkageError("the crossing by foreign functions cannot be used", broken);
        }
    }

    /** Loads a file; an error names the reason, such as its architecture or its libc. */
    private static void loadFile(String file) {
        try {
            System.load(file);
        } catch (UnsatisfiedLinkError refused) {
            throw ForebayException.of(
                    ErrorCode.UNSUPPORTED,
                    library
                            + " cannot be loaded on "
                            + platform()
                            + " ("
                            + refused.getMessage()
                            + "); it needs this architecture, and a libc that is no older than the"
                            + " one that it was built with: name another file by -D"
                            + PATH_PROPERTY);
        }
    }

    /** Loads the jar's own library, from a file that is deleted once it is loaded. */
    private static void loadPacked() {
        String place = "/io/forebay/native/" + platform() + "/libforebay_ffi.so";
        library = "the jar's " + place;
        try (InputStream packed = Native.class.getResourceAsStream(place)) {
            if (packed == null) {
                throw ForebayException.of(
                        ErrorCode.UNSUPPORTED,
                        "the jar has no "
                                + place
                                + ": it brings no library for this system and architecture;"
                                + " build clients/c and name its library by -D"
                                + PATH_PROPERTY);
            }
            Path file = Files.createTempFile("forebay", ".so");
            try {
                Files.copy(packed, file, StandardCopyOption.REPLACE_EXISTING);
                loadFile(file.toString());
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
