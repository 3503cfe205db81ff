package sidecar.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Against the node that the system properties {@code sidecar.bootstrap} and {@code sidecar.admin} name. */
@Tag("node")
@Timeout(60)
class NodeTest {
    private static final String BOOTSTRAP = System.getProperty("sidecar.bootstrap");
    private static final String ADMIN = System.getProperty("sidecar.admin");
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static final StringSerializer TEXT = new StringSerializer();

    private final List<AutoCloseable> closing = new ArrayList<>();

    @AfterEach
    void close() throws Exception {
        for (var each : closing) {
            each.close();
        }
    }

    private static Map<String, Object> configs(String name) {
        return new HashMap<>(Map.of("bootstrap.servers", BOOTSTRAP, "client.id", name));
    }

    private static String rest(String method, String path, String body) throws Exception {
        var publisher = body == null ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofString(body);
        var request = HttpRequest.newBuilder(URI.create(ADMIN + path)).method(method, publisher)
            .header("Content-Type", "application/json").build();
        var answer = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        assertTrue(answer.statusCode() < 300, answer.body());
        return answer.body();
    }

    private static String topic(int partitions, String policy) throws Exception {
        var name = "java-" + UUID.randomUUID();
        try (var admin = Admin.create(Map.of("bootstrap.servers", BOOTSTRAP))) {
            admin.createTopics(List.of(new NewTopic(name, Optional.of(partitions), Optional.empty()))).all().get();
        }
        if (policy != null) {
            rest("PUT", "/v1/topics/" + name + "/policy", policy);
        }
        return name;
    }

    private static String numbered(int partitions) throws Exception {
        return topic(partitions, "{\"access_mode\": \"exclusive\", \"deduplication\": true}");
    }

    private ExclusiveProducer<String, String> open(Map<String, Object> configs, String topic, AccessMode mode) {
        var producer = ExclusiveProducer.open(configs, topic, mode, TEXT, TEXT);
        closing.add(producer);
        return producer;
    }

    private ExclusiveProducer<String, String> open(String name, String topic) {
        return open(configs(name), topic, AccessMode.EXCLUSIVE);
    }

    private static ProducerRecord<String, String> record(String topic, String value) {
        return new ProducerRecord<>(topic, value);
    }

    private static Throwable failure(CompletableFuture<?> sent) {
        return assertThrows(CompletionException.class, () -> sent.orTimeout(30, TimeUnit.SECONDS).join()).getCause();
    }

    private static void await(BooleanSupplier condition) throws InterruptedException {
        for (int tries = 0; tries < 3_000 && !condition.getAsBoolean(); tries++) {
            Thread.sleep(10);
        }
        assertTrue(condition.getAsBoolean());
    }

    @Test
    void aRivalIsRefusedWithTheNameOfTheOwnerAndOwnsItAfterwards() throws Exception {
        var topic = numbered(1);
        var owner = open("owner", topic);
        var refused = assertThrows(ProducerBusyException.class, () -> open("rival", topic));
        assertTrue(refused.getMessage().contains("owner (generation 1)"), refused.getMessage());
        assertEquals(1, owner.send(record(topic, "a")).join().generation());
        owner.close();
        assertEquals(2, open("rival", topic).generation());
    }

    @Test
    void aFencerDeposesTheOwnerWhichLearnsOfItWhileIdle() throws Exception {
        var topic = numbered(1);
        var owner = open("a", topic);
        var usurper = open(configs("b"), topic, AccessMode.EXCLUSIVE_WITH_FENCING);
        owner.lost().orTimeout(30, TimeUnit.SECONDS).join();
        assertInstanceOf(ProducerFencedException.class, owner.error());
        assertInstanceOf(ProducerFencedException.class, failure(owner.send(record(topic, "late"))));
        assertEquals(List.of(1L, 2L), List.of(owner.generation(), usurper.generation()));
        assertEquals(0, usurper.send(record(topic, "b")).join().sequenceId());
    }

    @Test
    void whoWaitsIsInterruptedAndGivesItsPlaceBack() throws Exception {
        var topic = numbered(1);
        open("owner", topic);
        var outcome = new CompletableFuture<Void>();
        var waiting = new Thread(() -> {
            try {
                open(configs("waits"), topic, AccessMode.WAIT_FOR_EXCLUSIVE);
                outcome.complete(null);
            } catch (RuntimeException error) {
                outcome.completeExceptionally(error);
            }
        });
        waiting.start();
        await(() -> shown(topic).contains("\"name\":\"waits\""));
        waiting.interrupt();
        assertInstanceOf(InterruptException.class, failure(outcome));
        assertFalse(shown(topic).contains("\"name\":\"waits\""), "its place was given back");
    }

    private static String shown(String topic) {
        try {
            return rest("GET", "/v1/topics/" + topic, null).replace(" ", "");
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    @Test
    void idsCountUpAndGoOnInTheNextProducerOfTheName() throws Exception {
        var topic = numbered(2);
        var first = open("billing", topic);
        assertEquals(-1, first.lastSequenceId());
        for (int id = 0; id < 4; id++) {
            var receipt = first.send(record(topic, "v" + id)).join();
            assertEquals(List.of(id, id % 2), List.of((int) receipt.sequenceId(), receipt.partition()));
        }
        assertEquals(2, first.lastSequenceId());
        first.close();
        var second = open("billing", topic);
        assertEquals(Map.of(0, 2L, 1, 3L), second.lastSequenceIds());
        assertEquals(2, second.lastSequenceId());
        assertTrue(second.send(record(topic, "v3")).join().duplicate());
        var fresh = second.send(record(topic, "v4")).join();
        assertEquals(List.of(4L, false), List.of(fresh.sequenceId(), fresh.duplicate()));
        assertTrue(fresh.offset() >= 0);
    }

    @Test
    void aTopicWithoutDeduplicationHasNoIds() throws Exception {
        var topic = topic(1, null);
        var producer = open("billing", topic);
        assertEquals(-1, producer.send(record(topic, "v")).join().sequenceId());
        var refused = assertThrows(SequenceException.class, () -> producer.send(record(topic, "v"), 0));
        assertTrue(refused.getMessage().contains("sidecar topic set " + topic + " --dedup"));
        assertEquals(-1, producer.lastSequenceId());
    }

    @Test
    void aKeyIsInThePartitionThatKafkasProducerChooses() throws Exception {
        var topic = topic(5, null);
        var wanted = new HashMap<String, Integer>();
        try (var kafkas = new KafkaProducer<String, String>(configs("plain"), TEXT, TEXT)) {
            for (var key : List.of("a", "bb", "ccc", "dddd", "ünï")) {
                wanted.put(key, kafkas.send(new ProducerRecord<>(topic, key, "v")).get().partition());
            }
        }
        var producer = open("billing", topic);
        for (var each : wanted.entrySet()) {
            var record = new ProducerRecord<String, String>(topic, each.getKey(), "v");
            assertEquals(each.getValue(), producer.send(record).join().partition());
        }
    }

    /** A sender whose callbacks wait for a thread that waits for their memory would stand still. */
    @Test
    void moreThanTheBufferHoldsIsSent() throws Exception {
        var topic = numbered(1);
        var configs = configs("billing");
        configs.putAll(Map.of("buffer.memory", 32_768L, "batch.size", 16_384));
        var producer = open(configs, topic, AccessMode.EXCLUSIVE);
        var sent = new ArrayList<CompletableFuture<Receipt>>();
        for (int id = 0; id < 2_000; id++) {
            sent.add(producer.send(record(topic, "x".repeat(1_000))));
        }
        long last = -1;
        for (var each : sent) {
            long offset = each.join().offset();
            assertTrue(offset > last);
            last = offset;
        }
        assertEquals(1_999, producer.lastSequenceId());
    }

    @Test
    void aRecordThatIsRefusedTakesNothingWithIt() throws Exception {
        var topic = numbered(1);
        var producer = open("billing", topic);
        var long_ = producer.send(record(topic, "x".repeat(2_000_000)));
        assertInstanceOf(RecordTooLargeException.class, failure(long_));
        assertEquals(1, producer.send(record(topic, "v")).join().sequenceId());
        assertThrows(IllegalArgumentException.class, () -> producer.send(record("another", "v")));
        var reserved = record(topic, "v");
        reserved.headers().add("sidecar-sequence-id", new byte[0]);
        assertThrows(IllegalArgumentException.class, () -> producer.send(reserved));
        assertEquals(2, producer.send(record(topic, "v")).join().sequenceId());
    }

    @Test
    void closingWaitsForWhatWasSentAndRefusesMore() throws Exception {
        var topic = numbered(1);
        var configs = configs("billing");
        configs.put("linger.ms", 10_000);
        var producer = open(configs, topic, AccessMode.EXCLUSIVE);
        var sent = producer.send(record(topic, "v"));
        producer.close();
        producer.close();
        assertEquals(0, sent.getNow(null).sequenceId());
        assertTrue(producer.lost().isDone());
        assertEquals(null, producer.error());
        assertThrows(IllegalStateException.class, () -> producer.send(record(topic, "v")));
        assertTrue(shown(topic).contains("\"owner\":null"), shown(topic));
    }

    @Test
    void whatCannotBeIsRefusedWhenItIsOpened() throws Exception {
        var missing = assertThrows(UnknownTopicOrPartitionException.class, () -> open("billing", "not-there"));
        assertTrue(missing.getMessage().contains("sidecar topic create not-there"), missing.getMessage());
        var topic = topic(1, null);
        for (var wrong : Map.of("acks", "1", "enable.idempotence", "false", "transactional.id", "t").entrySet()) {
            var configs = configs("billing");
            configs.put(wrong.getKey(), wrong.getValue());
            assertThrows(ConfigException.class, () -> open(configs, topic, AccessMode.EXCLUSIVE), wrong.getKey());
        }
        for (var name : List.of("", "a;b", "producer-1", "x".repeat(256))) {
            assertThrows(ConfigException.class, () -> open(name, topic), name);
        }
        var nowhere = configs("billing");
        nowhere.putAll(Map.of("bootstrap.servers", "127.0.0.1:1", "max.block.ms", 300L));
        assertThrows(TimeoutException.class, () -> open(nowhere, topic, AccessMode.EXCLUSIVE));
        assertEquals(1, open("billing", topic).generation(), "nothing of these stayed open");
    }

    @Test
    void aTopicIsLedUnderAGenerationThatNeverFallsAndNobodyWritesThere() throws Exception {
        var topic = topic(1, null);
        var told = new java.util.concurrent.LinkedBlockingQueue<Object>();
        var listener = new LeaderElection.Listener() {
            @Override
            public void elected(long generation) {
                told.add(generation);
            }

            @Override
            public void lost(KafkaException why) {
                told.add(why.getClass());
            }
        };
        for (long generation = 1; generation <= 2; generation++) {
            var election = LeaderElection.campaign(configs("leads"), Resource.topic(topic), listener);
            closing.add(election);
            assertEquals(generation, told.poll(30, TimeUnit.SECONDS));
            assertTrue(election.isLeader());
            assertThrows(ProducerBusyException.class, () -> open("rival", topic));
            election.close();
            assertFalse(election.isLeader());
            assertEquals(SidecarException.class, told.poll(30, TimeUnit.SECONDS));
        }
        assertEquals(3, open("writer", topic).generation());
        assertThrows(IllegalArgumentException.class, () -> LeaderElection.campaign(
            configs("leads"), Resource.topic(topic), AccessMode.EXCLUSIVE, Duration.ofMillis(999), listener));
    }
}
