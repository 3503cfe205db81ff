package sidecar.client;

import java.io.IOException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.TimeoutException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Watches a producer's claim in a thread of its own and keeps it over reconnects; once it was lost it never asks for it
 * again.
 */
final class Keeper {
    private static final Logger LOG = LoggerFactory.getLogger(Keeper.class);
    private static final int WATCH_MS = 10_000;
    private static final Duration WATCHED = Duration.ofSeconds(15);
    private static final Duration TOUCHED = Duration.ofSeconds(10);

    private final Claim claim;
    private final String owner;
    private final Thread thread;
    private final CompletableFuture<Void> lost = new CompletableFuture<>();
    private volatile ApiException failure;
    private volatile boolean closed;
    /** Whether a node has to be asked before the claim is watched again; the thread's alone. */
    private boolean unsure;
    /** Completed once a node was asked whether the claim stands still; null where nobody asks. */
    private CompletableFuture<Void> doubt;

    /** {@code owner}: a few words for logs. */
    Keeper(Claim claim, String owner) {
        this.claim = claim;
        this.owner = owner;
        this.thread = new Thread(this::run, "sidecar-keeper: " + owner);
        thread.setDaemon(true);
    }

    void start() {
        thread.start();
    }

    /** Why it was lost; null before, and where it was let go of. */
    ApiException failure() {
        return failure;
    }

    /** Completed once it is owned no more. */
    CompletableFuture<Void> lost() {
        return lost;
    }

    /** Has a node asked whether the claim stands; completed then, {@link #failure} says the rest. */
    synchronized CompletableFuture<Void> ask() {
        if (failure != null || closed) {
            return CompletableFuture.completedFuture(null);
        }
        if (doubt == null) {
            doubt = new CompletableFuture<>();
            claim.wake();
        }
        return doubt;
    }

    /** It is lost: from here on it is let alone. */
    void lose(ApiException error) {
        synchronized (this) {
            if (failure != null || closed) {
                return;
            }
            failure = error;
        }
        LOG.warn("{}, owns it no more: {}", owner, error.getMessage());
        claim.wake();
        lost.complete(null);
        answer();
    }

    /** Lets go of it; returns when it is free for others, where the node answers. */
    void close() {
        synchronized (this) {
            closed = true;
        }
        claim.wake();
        try {
            if (Thread.currentThread() != thread) { // that runs what an application does when it lost the topic
                thread.join();
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
        lost.complete(null);
    }

    private void run() {
        try {
            while (!closed && failure == null) {
                try {
                    watch();
                } catch (Wire.WokenException woken) {
                    // to end, or to answer a doubt
                } catch (IOException | TimeoutException away) {
                    LOG.debug("{}: the claim is looked for again", owner, away);
                    unsure = true;
                    pause();
                } catch (ApiException error) {
                    lose(error);
                }
            }
            if (failure == null) {
                claim.release();
            }
        } catch (RuntimeException defect) {
            lose(new SidecarException("the claim is not watched any more: " + defect));
        } finally {
            claim.close();
            answer();
        }
    }

    private void watch() throws IOException {
        boolean asked;
        synchronized (this) {
            asked = doubt != null;
        }
        if (asked || unsure || !claim.isHeld()) {
            claim.confirm();
            unsure = false;
            answer();
        }
        claim.watch(WATCH_MS, WATCHED);
        claim.touch(TOUCHED);
    }

    private void pause() {
        try {
            claim.pause(Claim.AGAIN);
        } catch (IOException woken) {
            // what it is about is looked at next
        }
    }

    private void answer() {
        CompletableFuture<Void> asked;
        synchronized (this) {
            asked = doubt;
            doubt = null;
        }
        if (asked != null) {
            asked.complete(null);
        }
    }
}
