/* What is true of the client in this process. */
package io.forebay;

/** The client library itself. */
public final class Forebay {
    private Forebay() {}

    /**
     * Which native library this process has loaded, and how Java calls it and why. Loads it when
     * nothing has yet.
     *
     * @return what is loaded
     */
    public static NativeInfo nativeInfo() {
        return Native.info();
    }
}
