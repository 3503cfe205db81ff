package sidecar.client;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.ClientUtils;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.network.ByteBufferSend;
import org.apache.kafka.common.network.ChannelState;
import org.apache.kafka.common.network.NetworkSend;
import org.apache.kafka.common.network.Selector;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;

/**
 * Connections to nodes for requests that KafkaProducer cannot send. The network layer is kafka-clients' own, so TLS and
 * logins work by the settings of every Kafka client. It is no public API of Kafka's; what is used here has not changed
 * from 3.9 to 4.1.
 *
 * <p>Each connection has a name and one request under way at most. One thread uses it; any may call {@link #wake}.
 */
final class Wire implements AutoCloseable {
    private static final int BUFFER_BYTES = 64 * 1024;
    private static final long LAST_WORDS_NANOS = 100_000_000;
    private static final int RESPONSE_HEADER_BYTES = 4;

    /** Another thread wants this one's attention; what was under way on a connection is still to be answered. */
    static final class WokenException extends IOException {
        private static final long serialVersionUID = 1L;
    }

    private final Selector selector;
    private final Metrics metrics;
    private final byte[] clientId;
    private final Map<String, ChannelState> ended = new HashMap<>();
    private final Map<String, ByteBuffer> answers = new HashMap<>();
    private int correlation;
    private volatile boolean woken;
    private boolean deaf;
    private boolean closed;

    Wire(Map<String, ?> configs, String clientId) {
        var log = new LogContext("[sidecar client " + clientId + "] ");
        this.clientId = clientId.getBytes(StandardCharsets.UTF_8);
        this.metrics = new Metrics();
        var builder = ClientUtils.createChannelBuilder(new AdminClientConfig(configs), Time.SYSTEM, log);
        this.selector = new Selector(Selector.NO_IDLE_TIMEOUT_MS, metrics, Time.SYSTEM, "sidecar", builder, log);
    }

    /** Connects under this name, ending what had it. Throws AuthenticationException where the login is refused. */
    void open(String name, String address, Duration limit) throws IOException {
        close(name);
        long until = System.nanoTime() + limit.toNanos();
        var host = Utils.getHost(address);
        var port = Utils.getPort(address);
        if (host == null || port == null) {
            throw new IllegalArgumentException("not host:port: " + address);
        }
        selector.connect(name, new InetSocketAddress(host, port), BUFFER_BYTES, BUFFER_BYTES);
        while (!selector.isChannelReady(name)) {
            await(name, address + " does not accept the connection", until);
        }
    }

    boolean isOpen(String name) {
        return selector.isChannelReady(name) && !ended.containsKey(name);
    }

    /**
     * One request and its answer's body; request header version 1, response header version 0. Where it throws the
     * connection is closed: its answer would be taken for that of the next request.
     */
    byte[] call(String name, int key, int version, byte[] body, Duration limit) throws IOException {
        long until = System.nanoTime() + limit.toNanos();
        var frame = ByteBuffer.allocate(10 + clientId.length + body.length);
        frame.putShort((short) key).putShort((short) version).putInt(++correlation);
        frame.putShort((short) clientId.length).put(clientId).put(body).flip();
        try {
            if (!isOpen(name)) {
                throw new IOException("there is no connection");
            }
            answers.remove(name);
            selector.send(new NetworkSend(name, ByteBufferSend.sizePrefixed(frame)));
            while (!answers.containsKey(name)) {
                await(name, "no answer came", until);
                if (!ended.isEmpty()) { // the other connection: the reason may be on its way on this one
                    until = Math.min(until, System.nanoTime() + LAST_WORDS_NANOS);
                }
            }
            var answer = answers.remove(name);
            if (answer.remaining() < RESPONSE_HEADER_BYTES || answer.getInt() != correlation) {
                throw new IOException("an answer to another request");
            }
            var found = new byte[answer.remaining()];
            answer.get(found);
            return found;
        } catch (IOException | RuntimeException error) {
            close(name);
            throw error;
        }
    }

    /** As {@link #call}, and {@link #wake} waits until the next one: it would cost the connection. */
    byte[] uninterrupted(String name, int key, int version, byte[] body, Duration limit) throws IOException {
        deaf = true;
        try {
            return call(name, key, version, body, limit);
        } finally {
            deaf = false;
        }
    }

    /** Waits, reading what comes meanwhile. */
    void pause(Duration time) throws IOException {
        long until = System.nanoTime() + time.toNanos();
        for (long left = time.toNanos(); left > 0; left = until - System.nanoTime()) {
            poll(left);
        }
    }

    /** Has the other thread's call or pause throw {@link WokenException}, once. */
    synchronized void wake() {
        woken = true;
        if (!closed) {
            selector.wakeup();
        }
    }

    void close(String name) {
        selector.close(name);
        ended.remove(name);
        answers.remove(name);
    }

    @Override
    public synchronized void close() {
        closed = true;
        selector.close();
        metrics.close();
    }

    private void await(String name, String otherwise, long until) throws IOException {
        long left = until - System.nanoTime();
        if (left <= 0) {
            close(name);
            throw new IOException(otherwise);
        }
        poll(left);
        var state = ended.get(name);
        if (state != null && !answers.containsKey(name)) {
            if (state.exception() != null) {
                throw state.exception();
            }
            throw new IOException("the connection to the node ended");
        }
    }

    private void poll(long nanos) throws IOException {
        selector.poll(Math.max(1, Math.min(nanos / 1_000_000, 60_000)));
        ended.putAll(selector.disconnected());
        selector.completedReceives().forEach(each -> answers.put(each.source(), each.payload()));
        if (Thread.interrupted()) {
            throw new InterruptException("interrupted while a node was asked");
        }
        if (woken && !deaf) {
            woken = false;
            throw new WokenException();
        }
    }
}
