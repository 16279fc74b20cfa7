/* Information about the client in this process. */
package io.forebay;

/** The client library itself. */
public final class Forebay {
    private Forebay() {}

    /**
     * Returns which native library this process has loaded, and how Java calls the library and why.
     * Loads the library if it is not loaded yet.
     *
     * @return the loaded library
     */
    public static NativeInfo nativeInfo() {
        return Native.info();
    }
}
