package sidecar.client;

import java.io.IOException;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One of many processes leads, by the claim to a string or to a topic. It runs for the leadership until {@link #close}:
 * elected, lost, and in the queue again.
 *
 * <pre>{@code
 * var election = LeaderElection.campaign(
 *     Map.of("bootstrap.servers", "localhost:19092", "client.id", "host-1"),
 *     Resource.name("scheduler"),
 *     new LeaderElection.Listener() {
 *         public void elected(long generation) { scheduler.start(generation); }
 *         public void lost(KafkaException why) { scheduler.stop(); }
 *     });
 * }</pre>
 *
 * <p>The claim belongs to a connection and ends with it: when this process dies, and when the node does. {@code lost}
 * is called at once where somebody takes the claim, an operator does or the node dies. A node that is silent, or a
 * network in between, says nothing: then {@code lost} is called, and {@link #isLeader} turns false, {@code silence}
 * after the last question that the node answered was sent. The claim may be another's before that: a node that does not
 * renew its lease is replaced.
 *
 * <p><b>A process that is stalled</b> keeps its claim as long as its connection stands, unless somebody takes it with
 * {@link AccessMode#EXCLUSIVE_WITH_FENCING}. It notices nothing meanwhile, and cannot stop what it has sent elsewhere.
 * So let what leads write through something that refuses a former leader: an {@link ExclusiveProducer}, or a store that
 * compares the generation of a {@link Resource#topic}, which never falls. The generation of a string begins again with
 * 1 once nobody owned it: it is no fencing token.
 */
public final class LeaderElection implements AutoCloseable {

    /**
     * What a candidate is told, in order and in a thread of its own. Its methods return soon: while one of them runs no
     * other is called, {@code lost} neither. What they throw is logged.
     */
    public interface Listener {
        /**
         * This candidate leads from now on. {@link #isLeader} may be false again already.
         *
         * @param generation of the claim, from 1 on
         */
        void elected(long generation);

        /**
         * It leads no more; once for each {@code elected}. {@code why}: ProducerFencedException where the claim was
         * taken, TimeoutException where its connection ended or the node was silent, SidecarException at {@code close}.
         */
        void lost(KafkaException why);

        /**
         * The campaign is over for good: ProducerBusyException with {@link AccessMode#EXCLUSIVE}, a login that failed,
         * a topic that is not there or may not be claimed.
         */
        default void failed(KafkaException why) {}
    }

    private static final Logger LOG = LoggerFactory.getLogger(LeaderElection.class);
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final Duration SILENCE = Duration.ofSeconds(10);
    private static final Duration LEAST_SILENCE = Duration.ofSeconds(1);
    private static final Duration ASKED = Duration.ofSeconds(1);
    private static final int QUESTIONS = 4;

    private final String name;
    private final Resource resource;
    private final AccessMode first;
    private final long silence;
    private final Listener listener;
    private final Claim claim;
    private final Thread keeper;
    private final ExecutorService calls;
    private volatile boolean closed;
    private volatile boolean leads;
    /** By System.nanoTime, when the last question was sent that was answered with nothing against the claim. */
    private volatile long heard;

    /** Runs for it, waiting in the order in which candidates came; {@code silence} is 10 s. */
    public static LeaderElection campaign(Map<String, ?> configs, Resource resource, Listener listener) {
        return campaign(configs, resource, AccessMode.WAIT_FOR_EXCLUSIVE, SILENCE, listener);
    }

    /**
     * Runs for it; returns at once.
     *
     * @param configs settings of a Kafka client: {@code bootstrap.servers} names nodes, {@code client.id} is who this
     *     is, for people; a unique name without it
     * @param mode of the first claim, so that a campaign with fencing takes it once; after a loss it waits
     * @param silence how long a node may be silent before the leadership counts as lost, 1 s at least
     * @throws KafkaException a setting cannot be
     */
    public static LeaderElection campaign(
            Map<String, ?> configs, Resource resource, AccessMode mode, Duration silence, Listener listener) {
        if (silence.compareTo(LEAST_SILENCE) < 0) {
            throw new IllegalArgumentException("silence is " + silence.toMillis() + " ms, less than 1 s");
        }
        var election = new LeaderElection(configs, resource, mode, silence, listener);
        election.keeper.start();
        return election;
    }

    private LeaderElection(
            Map<String, ?> configs, Resource resource, AccessMode mode, Duration silence, Listener listener) {
        this.name = Names.of(configs);
        this.resource = resource;
        this.first = mode;
        this.silence = silence.toNanos();
        this.listener = listener;
        this.claim = new Claim(configs, resource, name);
        this.keeper = daemon(this::run, "sidecar-election-" + resource);
        this.calls = Executors.newSingleThreadExecutor(work -> daemon(work, "sidecar-listener-" + resource));
    }

    /** Who runs, given or assigned. */
    public String name() {
        return name;
    }

    /**
     * Whether it leads, as far as a node answered within {@code silence}. Costs no request; of a process that was
     * stalled longer than that it is false before anything else happens.
     */
    public boolean isLeader() {
        return leads && isFresh();
    }

    /** The generation under which it leads or led; 0 before. */
    public long generation() {
        return claim.generation();
    }

    /** Gives the leadership up, or its place; returns when it is free for others, where the node answers. */
    @Override
    public void close() {
        closed = true;
        leads = false;
        claim.wake();
        try {
            keeper.join();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    // Running --------------------------------------------------------------------------------------------------------

    private void run() {
        var mode = first;
        try {
            while (!closed) {
                try {
                    claim.take(mode, PATIENCE);
                    mode = AccessMode.WAIT_FOR_EXCLUSIVE;
                    lead();
                } catch (Wire.WokenException woken) {
                    continue;
                } catch (IOException | TimeoutException away) {
                    LOG.info("{}: no node answers for {}: {}", name, resource, away.getMessage());
                } catch (ProducerFencedException evicted) {
                    LOG.info("{}: {} was taken by force: {}", name, resource, evicted.getMessage());
                    mode = AccessMode.WAIT_FOR_EXCLUSIVE;
                } catch (ProducerBusyException busy) {
                    if (mode == AccessMode.EXCLUSIVE) {
                        throw busy;
                    }
                }
                again();
            }
        } catch (KafkaException error) {
            call(() -> listener.failed(error));
        } catch (RuntimeException defect) {
            call(() -> listener.failed(new SidecarException("the campaign ended: " + defect)));
        } finally {
            claim.close();
            calls.shutdown();
        }
    }

    /** Returns once it leads no more. */
    private void lead() throws IOException {
        ask(0, System.nanoTime() + ASKED.toNanos() * 5);
        long generation = claim.generation();
        leads = !closed;
        call(() -> listener.elected(generation));
        ApiException why;
        try {
            why = watch();
        } catch (RuntimeException defect) {
            why = new SidecarException("the claim is not watched any more: " + defect);
        }
        leads = false;
        claim.release();
        var reason = why;
        LOG.info("{} leads {} no more: {}", name, resource, reason.getMessage());
        call(() -> listener.lost(reason));
    }

    private ApiException watch() {
        while (!closed && isFresh()) {
            try {
                ask((int) (silence / QUESTIONS / 1_000_000), heard + silence);
                claim.touch(Duration.ofNanos(Math.max(1, heard + silence - System.nanoTime())));
            } catch (Wire.WokenException woken) {
                continue;
            } catch (IOException | TimeoutException away) {
                if (away instanceof Claim.MovedException moved) {
                    return new ProducerFencedException(moved.getMessage());
                }
                if (!claim.isHeld() && isFresh()) {
                    return reason();
                }
                pause();
            } catch (ApiException lost) {
                return lost;
            }
        }
        return closed ? new SidecarException("it was closed")
            : new TimeoutException("no node vouched for the claim for " + silence / 1_000_000 + " ms");
    }

    /** Why the node ended the connection: it may say so to one that asks. */
    private ApiException reason() {
        try {
            claim.watch(0, ASKED);
        } catch (ProducerFencedException taken) {
            return taken;
        } catch (IOException | ApiException unknown) {
            // it may be dead
        }
        return new TimeoutException("the node ended the connection, and with it the claim");
    }

    private void ask(int waitMs, long until) throws IOException {
        long sent = System.nanoTime();
        claim.watch(waitMs, Duration.ofNanos(Math.max(1, until - sent)));
        heard = sent;
    }

    private boolean isFresh() {
        return System.nanoTime() - heard <= silence;
    }

    private void pause() {
        try {
            claim.pause(Claim.AGAIN);
        } catch (IOException woken) {
            // what it is about is looked at next
        }
    }

    private void again() {
        try {
            claim.rest();
        } catch (Wire.WokenException | TimeoutException woken) {
            // likewise
        }
    }

    private void call(Runnable work) {
        calls.execute(() -> {
            try {
                work.run();
            } catch (RuntimeException error) {
                LOG.error("{}: the listener for {} failed", name, resource, error);
            }
        });
    }

    private static Thread daemon(Runnable work, String name) {
        var thread = new Thread(work, name);
        thread.setDaemon(true);
        return thread;
    }
}
