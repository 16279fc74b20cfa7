/* Passes log records of the native core to SLF4J. */
package io.forebay;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Passes the native core's records to loggers below {@code io.forebay.core}. The native core
 * creates no records below the level of that logger, and none at all if no logger wants them.
 */
final class NativeLog {
    private static final String NAME = "io.forebay.core";
    private static final Logger LOG = LoggerFactory.getLogger(NAME);
    private static final int ERROR = 1;
    private static final int WARN = 2;
    private static final int INFO = 3;
    private static final int DEBUG = 4;
    private static final int TRACE = 5;

    private static int asked;

    private NativeLog() {}

    /** Requests the records that the logger wants now. */
    static synchronized void refresh() {
        int wanted = wanted();
        if (wanted == asked) {
            return;
        }
        CallBuffer call = CallBuffer.take();
        try {
            long sink = wanted == 0 ? 0 : Inbox.get().sink(call, Ticket.NUMBER);
            call.check(Native.CALLS.logTo(wanted, sink, call.error()));
            asked = wanted;
        } finally {
            call.release();
        }
    }

    private static final class Ticket {
        static final long NUMBER = Inbox.get().each(NativeLog::hear);
    }

    private static int wanted() {
        if (LOG.isTraceEnabled()) {
            return TRACE;
        }
        if (LOG.isDebugEnabled()) {
            return DEBUG;
        }
        if (LOG.isInfoEnabled()) {
            return INFO;
        }
        if (LOG.isWarnEnabled()) {
            return WARN;
        }
        return LOG.isErrorEnabled() ? ERROR : 0;
    }

    private static void hear(Unpacker event) {
        int level = event.i32();
        Logger logger = LoggerFactory.getLogger(NAME + "." + event.text().replace("::", "."));
        String message = event.text();
        switch (level) {
            case ERROR -> logger.error(message);
            case WARN -> logger.warn(message);
            case INFO -> logger.info(message);
            case DEBUG -> logger.debug(message);
            default -> logger.trace(message);
        }
    }
}
