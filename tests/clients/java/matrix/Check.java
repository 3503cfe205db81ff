package matrix;

import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** What a scenario says about what it saw. All of it throws AssertionError with a message that shows the value seen. */
final class Check {
    static final long WAIT_MS = 20_000;

    private Check() {}

    /** A call of the client, which may throw anything. */
    interface Call {
        void run() throws Exception;
    }

    static void that(boolean condition, String message) {
        if (!condition) {
            throw new AssertionError(message);
        }
    }

    static void same(Object actual, Object expected, String what) {
        that(Objects.equals(actual, expected), what + ": " + cut(actual) + " instead of " + cut(expected));
    }

    /** Call {@code look} until it returns true. */
    static void until(String what, Callable<Boolean> look) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(WAIT_MS);
        while (!look.call()) {
            that(System.nanoTime() < deadline, what + ": not within " + WAIT_MS + " ms");
            Thread.sleep(20);
        }
    }

    /** Wait for the result of an asynchronous call. */
    static <T> T done(Future<T> future) throws Exception {
        return future.get(WAIT_MS, TimeUnit.MILLISECONDS);
    }

    /** Run a call that has to fail with an error of this class, wrapped by a future or not, and return the error. */
    static <E extends Throwable> E failing(Class<E> expected, Call call) {
        try {
            call.run();
        } catch (Exception error) {
            Throwable found = error instanceof ExecutionException ? error.getCause() : error;
            if (expected.isInstance(found)) {
                return expected.cast(found);
            }
            throw new AssertionError("failed with " + found + " instead of " + expected.getSimpleName(), found);
        }
        throw new AssertionError("succeeded instead of failing with " + expected.getSimpleName());
    }

    private static String cut(Object value) {
        String text = String.valueOf(value);
        return text.length() <= 600 ? text : text.substring(0, 600) + "… (" + text.length() + " characters)";
    }
}
