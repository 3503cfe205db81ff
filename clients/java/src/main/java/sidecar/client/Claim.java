package sidecar.client;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * One claim by Own: the node found that can grant it, waited for, held by one connection and watched by another, since
 * a Watch parks its connection (docs/reference/own-apis.md). Takes nothing back by itself: who uses it decides.
 *
 * <p>One thread at a time uses it; any may call {@link #wake}.
 */
final class Claim implements AutoCloseable {
    /** How long a node may be away before it is looked for again. */
    static final Duration AGAIN = Duration.ofMillis(100);
    /** For what a node answers out of its memory. */
    private static final Duration SHORT = Duration.ofSeconds(5);
    /** Besides what the request itself waits: the node may take the topic over and read its log. */
    private static final Duration ANSWER = Duration.ofSeconds(20);
    private static final Duration FAREWELL = Duration.ofSeconds(1);
    private static final int WAIT_MS = 5_000;
    private static final String OWNER = "owner";
    private static final String WATCHER = "watcher";
    private static final int METADATA = 3;
    private static final int OWN = 1000;
    private static final int RELEASE = 1001;
    private static final int DESCRIBE_OWNERS = 1002;
    private static final int LAST_SEQUENCE = 1003;
    private static final int WATCH = 1004;
    private static final SecureRandom RANDOM = new SecureRandom();

    /** The node does not know of the claim any more: a session asks another one, a connection's claim is gone. */
    static final class MovedException extends TimeoutException {
        private static final long serialVersionUID = 1L;

        MovedException(String message) {
            super(message.isEmpty() ? "the claim is not known any more" : message);
        }
    }

    /** The session that the claim is bound to: a producer id, or -1 for the connection that asks. */
    long producerId = -1;

    private final Wire wire;
    private final Resource resource;
    private final String name;
    private final List<String> bootstrap;
    private final List<String> nodes = new ArrayList<>();
    private final Map<Integer, String> nodesById = new HashMap<>();
    private String address;
    private byte[] token = new byte[0];
    private volatile long generation;

    Claim(Map<String, ?> configs, Resource resource, String name) {
        this.resource = resource;
        this.name = name;
        this.bootstrap = addresses(configs.get(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG));
        this.wire = new Wire(configs, name);
    }

    /** The generation under which it is or was owned; 0 before. */
    long generation() {
        return generation;
    }

    void wake() {
        wire.wake();
    }

    void pause(Duration time) throws IOException {
        wire.pause(time);
    }

    boolean isHeld() {
        return wire.isOpen(OWNER);
    }

    /**
     * Owns it, and waits as long as it takes where the mode says so; {@code patience} is how long no node may answer.
     * Throws ProducerBusyException, ProducerFencedException where who waits is evicted, TimeoutException, ApiException.
     */
    void take(AccessMode mode, Duration patience) throws Wire.WokenException {
        var waits = mode == AccessMode.WAIT_FOR_EXCLUSIVE;
        var limit = new Limit(patience);
        token = newToken();
        while (true) {
            try {
                if (connect() && producerId < 0) { // a place of the connection before has ended with that
                    token = newToken();
                }
                var answer = own(mode, OptionalLong.empty(), waits ? WAIT_MS : 0);
                if (answer.error() != Answer.TIMED_OUT || !waits) {
                    granted(answer);
                    return;
                }
                limit.again();
            } catch (Wire.WokenException woken) {
                throw woken;
            } catch (IOException | TimeoutException error) {
                limit.check(error);
                rest();
            }
        }
    }

    /**
     * Shows the session on a new connection, or asks whether it owns still: under the generation that it had, so that a
     * claim that passed on is refused for good. Throws ProducerFencedException where it is lost, TimeoutException.
     */
    void confirm() throws IOException {
        connect();
        token = newToken();
        try {
            granted(own(AccessMode.EXCLUSIVE, OptionalLong.of(generation), 0));
        } catch (ProducerBusyException | SidecarException error) {
            throw new ProducerFencedException(error.getMessage());
        }
    }

    /**
     * A question on the connection that holds the claim, which is silent otherwise: a login that ends after a time is
     * renewed with it (KIP-368), and what forgets idle connections on the way does not.
     */
    void touch(Duration limit) throws IOException {
        learnNodes(wire.uninterrupted(OWNER, METADATA, 1, new byte[4], limit));
    }

    /**
     * Waits for news of it, {@code waitMs} at most. Throws ProducerFencedException where it is lost; MovedException,
     * which is a TimeoutException, where this node does not know of it any more; TimeoutException.
     */
    void watch(int waitMs, Duration limit) throws IOException {
        if (!wire.isOpen(WATCHER)) {
            wire.open(WATCHER, address, limit);
        }
        var body = new Proto.Writer().bytes(1, token).number(2, waitMs).toBytes();
        var answer = Answer.read(wire.call(WATCHER, WATCH, 0, body, limit), false);
        settle(answer.error(), answer.message());
        for (var each : answer.owners()) {
            settle(each.error(), each.message());
            generation = each.generation();
        }
    }

    /** Throws what an error of Watch's means. */
    private void settle(int error, String message) {
        if (error == Answer.NONE || error == Answer.TIMED_OUT) {
            return;
        }
        var moved = error == Answer.NOT_SERVING || error == Answer.UNKNOWN_RESOURCE;
        throw moved ? new MovedException(message) : Answer.refusal(error, message, resource);
    }

    /** The generation of its last owner as a node knows it, 0 where there was none. */
    long lastGeneration(Duration patience) throws Wire.WokenException {
        var body = new Proto.Writer().message(2, encoded()).toBytes();
        return ask(DESCRIBE_OWNERS, body, patience).owner().generation();
    }

    /** The highest sequence ids of its name in the topic's log by partition; null for a topic without deduplication. */
    Map<Integer, Long> lastIds(Duration patience) throws Wire.WokenException {
        var body = new Proto.Writer().text(1, resource.topic()).text(2, name).toBytes();
        var answer = ask(LAST_SEQUENCE, body, patience);
        return answer.error() == Answer.UNKNOWN_RESOURCE ? null : answer.lastIds();
    }

    /** Gives it back, and waits for the node's word that it is free for others. */
    void release() {
        var body = new Proto.Writer().message(2, encoded()).bytes(3, token).toBytes();
        for (int tries = 0; tries < 2 && token.length > 0 && address != null; tries++) {
            try {
                if (producerId >= 0 && !wire.isOpen(OWNER)) { // a node keeps the place of a session that waited
                    wire.open(OWNER, address, FAREWELL);
                }
                wire.call(OWNER, RELEASE, 0, body, SHORT);
                return;
            } catch (Wire.WokenException again) {
                continue;
            } catch (IOException | KafkaException gone) {
                return; // it ends with its connections
            }
        }
    }

    /** Ends the connections, and with them the claim of a connection. */
    void rest() throws Wire.WokenException {
        wire.close(WATCHER);
        wire.close(OWNER);
        try {
            wire.pause(AGAIN);
        } catch (Wire.WokenException woken) {
            throw woken;
        } catch (IOException error) {
            throw new TimeoutException(error);
        }
    }

    @Override
    public void close() {
        wire.close();
    }

    // Steps ----------------------------------------------------------------------------------------------------------

    private Answer ask(int key, byte[] body, Duration patience) throws Wire.WokenException {
        var limit = new Limit(patience);
        while (true) {
            try {
                connect();
                var answer = Answer.read(wire.call(OWNER, key, 0, body, ANSWER), key == LAST_SEQUENCE);
                if (answer.error() == Answer.NONE || answer.error() == Answer.UNKNOWN_RESOURCE) {
                    return answer;
                }
                throw answer.refusal(resource);
            } catch (Wire.WokenException woken) {
                throw woken;
            } catch (IOException | TimeoutException error) {
                limit.check(error);
                rest();
            }
        }
    }

    private Answer own(AccessMode mode, OptionalLong asked, int waitMs) throws IOException {
        var claim = new Proto.Writer().message(1, encoded());
        asked.ifPresent(number -> claim.present(2, number));
        var body = new Proto.Writer().message(2, claim).number(3, mode.number).text(4, name).bytes(5, token)
            .number(6, waitMs).present(7, producerId).toBytes();
        return Answer.read(wire.call(OWNER, OWN, 0, body, ANSWER.plusMillis(waitMs)), false);
    }

    private void granted(Answer answer) {
        if (answer.error() == Answer.NOT_SERVING) {
            wire.close(OWNER);
            address = nodesById.get(answer.owner().servingNode());
        }
        if (answer.error() != Answer.NONE) {
            throw answer.refusal(resource);
        }
        generation = answer.owner().generation();
    }

    private Proto.Writer encoded() {
        return new Proto.Writer().text(1, resource.topic()).text(3, resource.name());
    }

    /** Whether a new connection was opened. Tries the node that was named last first, then all that are known. */
    private boolean connect() throws IOException {
        if (wire.isOpen(OWNER)) {
            return false;
        }
        wire.close(WATCHER);
        var candidates = new LinkedHashSet<String>();
        if (address != null) {
            candidates.add(address);
        }
        candidates.addAll(nodes);
        candidates.addAll(bootstrap);
        IOException last = null;
        for (var each : candidates) {
            try {
                wire.open(OWNER, each, SHORT);
                learnNodes(wire.call(OWNER, METADATA, 1, new byte[4], SHORT));
                address = each;
                return true;
            } catch (Wire.WokenException woken) {
                throw woken;
            } catch (IOException error) {
                last = new IOException(each + ": " + error.getMessage(), error);
            }
        }
        address = null;
        throw last;
    }

    /** The live nodes, from Kafka's Metadata version 1. It named no topic, as to name one may create it. */
    private void learnNodes(byte[] body) throws IOException {
        try {
            var answer = ByteBuffer.wrap(body);
            nodes.clear();
            nodesById.clear();
            for (int left = answer.getInt(); left > 0; left--) {
                int id = answer.getInt();
                var host = new byte[answer.getShort()];
                answer.get(host);
                var found = new String(host, StandardCharsets.UTF_8);
                var at = (found.contains(":") ? "[" + found + "]" : found) + ":" + answer.getInt();
                answer.position(Math.max(0, answer.getShort()) + answer.position()); // its rack
                nodes.add(at);
                nodesById.put(id, at);
            }
        } catch (RuntimeException malformed) {
            throw new IOException("an answer that is no Metadata", malformed);
        }
    }

    private static byte[] newToken() {
        var token = new byte[16];
        RANDOM.nextBytes(token);
        return token;
    }

    private static List<String> addresses(Object servers) {
        var text = servers instanceof List<?> list ? String.join(",", list.stream().map(String::valueOf).toList())
            : String.valueOf(servers == null ? "" : servers);
        var found = List.of(text.trim().split("\\s*,\\s*"));
        if (text.isBlank()) {
            throw new ConfigException(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG, servers, "no node is named");
        }
        return found;
    }

    /** How long no node may answer. */
    private static final class Limit {
        private final Duration patience;
        private long until;

        Limit(Duration patience) {
            this.patience = patience;
            again();
        }

        void again() {
            until = System.nanoTime() + patience.toNanos();
        }

        void check(Exception error) {
            if (System.nanoTime() - until > 0) {
                throw new TimeoutException(
                    "no node could do it within " + patience.toMillis() + " ms: " + error.getMessage(), error);
            }
        }
    }
}
