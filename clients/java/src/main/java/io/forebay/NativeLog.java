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
            long sink = wanted == 0 ? 0 : CompletionQueue.get().sink(call, Ticket.NUMBER);
            call.check(Native.CALLS.logTo(wanted, sink, call.error()));
            asked = wanted;
        } finally {
            call.release();
        }
    }

    private static final class Ticket {
        static final long NUMBER = CompletionQueue.get().each(NativeLog::onEvent);
    }

    private static int wanted() {
        if (LOG.isTraceEnabled()) {
            return HeaderConstants.LOG_TRACE;
        }
        if (LOG.isDebugEnabled()) {
            return HeaderConstants.LOG_DEBUG;
        }
        if (LOG.isInfoEnabled()) {
            return HeaderConstants.LOG_INFO;
        }
        if (LOG.isWarnEnabled()) {
            return HeaderConstants.LOG_WARN;
        }
        return LOG.isErrorEnabled() ? HeaderConstants.LOG_ERROR : 0;
    }

    private static void onEvent(Unpacker event) {
        int level = event.i32();
        Logger logger = LoggerFactory.getLogger(NAME + "." + event.text().replace("::", "."));
        String message = event.text();
        switch (level) {
            case HeaderConstants.LOG_ERROR -> logger.error(message);
            case HeaderConstants.LOG_WARN -> logger.warn(message);
            case HeaderConstants.LOG_INFO -> logger.info(message);
            case HeaderConstants.LOG_DEBUG -> logger.debug(message);
            default -> logger.trace(message);
        }
    }
}
