package matrix;

import static matrix.Check.done;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.StreamSupport;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * One cell to run, and the few calls of the client that most scenarios share. Settings are the client's defaults unless a
 * scenario says so; names are used by no other cell and no other run. Closing it closes the clients made through it.
 */
final class Cell implements AutoCloseable {
    private final JsonNode request;
    private final Runnable hold;
    private final List<AutoCloseable> open = new ArrayList<>();
    private Admin admin;

    Cell(JsonNode request, Runnable hold) {
        this.request = request;
        this.hold = hold;
    }

    String feature() {
        return request.get("feature").asText();
    }

    /** The last part of the feature's name: {@code gzip} of {@code compression-gzip}. */
    String argument() {
        return feature().substring(feature().lastIndexOf('-') + 1);
    }

    String name(String suffix) {
        return request.get("prefix").asText() + "." + suffix;
    }

    /** Whether the brokers have an authorizer: without one, Kafka itself refuses all that has to do with ACLs. */
    boolean secured() {
        return request.get("secured").asBoolean();
    }

    void hold() {
        hold.run();
    }

    /** Check that these are nodes that clients are to know. */
    void onlyNodes(Collection<Node> found, String where) {
        Set<String> addresses = found.stream().map(node -> node.host() + ":" + node.port()).collect(Collectors.toCollection(TreeSet::new));
        Set<String> nodes = StreamSupport.stream(request.get("nodes").spliterator(), false).map(JsonNode::asText).collect(Collectors.toSet());
        Check.that(!addresses.isEmpty(), where + " names no address at all");
        Check.that(nodes.containsAll(addresses), where + " names " + addresses + "; the nodes are " + nodes);
    }

    Admin admin() {
        if (admin == null) {
            admin = keep(Admin.create(settings()));
        }
        return admin;
    }

    /**
     * Create a topic and wait until every partition's leader serves it; {@code config} in pairs of name and value. Without that
     * the first of several batches under way may be refused and the second accepted, which no idempotent producer gets over:
     * Kafka takes any sequence from a producer id that the partition does not know.
     */
    String topic(String suffix, int partitions, String... config) throws Exception {
        Map<String, String> settings = new HashMap<>();
        for (int place = 0; place < config.length; place += 2) {
            settings.put(config[place], config[place + 1]);
        }
        String topic = name(suffix);
        done(admin().createTopics(List.of(new NewTopic(topic, Optional.of(partitions), Optional.empty()).configs(settings))).all());
        Map<TopicPartition, OffsetSpec> latest = new HashMap<>();
        IntStream.range(0, partitions).forEach(partition -> latest.put(new TopicPartition(topic, partition), OffsetSpec.latest()));
        Check.until(topic + " is served", () -> {
            try {
                return done(admin().listOffsets(latest).all()).size() == partitions;
            } catch (ExecutionException error) {
                if (error.getCause() instanceof InvalidMetadataException) {
                    return false;
                }
                throw error;
            }
        });
        return topic;
    }

    /** A producer of text; {@code settings} in pairs of name and value. */
    Producer<String, String> producer(Object... settings) {
        return keep(new KafkaProducer<>(settings(settings), new StringSerializer(), new StringSerializer()));
    }

    /** A producer of bytes. */
    Producer<byte[], byte[]> bytesProducer(Object... settings) {
        return keep(new KafkaProducer<>(settings(settings), new ByteArraySerializer(), new ByteArraySerializer()));
    }

    /** A consumer of text that starts at the beginning and commits only when told; in no group where {@code group} is null. */
    Consumer<String, String> consumer(String group, Object... settings) {
        return keep(new KafkaConsumer<>(reading(group, settings), new StringDeserializer(), new StringDeserializer()));
    }

    /** A consumer of bytes. */
    Consumer<byte[], byte[]> bytesConsumer(Object... settings) {
        return keep(new KafkaConsumer<>(reading(null, settings), new ByteArrayDeserializer(), new ByteArrayDeserializer()));
    }

    /** Write the records, wait for their answers and return the offsets; a failed one throws. */
    <K, V> List<Long> send(Producer<K, V> producer, List<ProducerRecord<K, V>> records) throws Exception {
        List<Future<RecordMetadata>> pending = records.stream().map(producer::send).toList();
        producer.flush();
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> one : pending) {
            offsets.add(done(one).offset());
        }
        return offsets;
    }

    /** {@code send} with a producer of its own, and the values {@code start}, … as text. */
    void write(String topic, int partition, int start, int count) throws Exception {
        try (Producer<String, String> producer = new KafkaProducer<>(settings(), new StringSerializer(), new StringSerializer())) {
            send(producer, numbered(topic, partition, start, count));
        }
    }

    static List<ProducerRecord<String, String>> numbered(String topic, Integer partition, int start, int count) {
        return IntStream.range(start, start + count)
                .mapToObj(number -> new ProducerRecord<String, String>(topic, partition, null, "" + number))
                .toList();
    }

    /** Poll until there are at least {@code count} records. */
    static <K, V> List<ConsumerRecord<K, V>> take(Consumer<K, V> consumer, int count) {
        List<ConsumerRecord<K, V>> records = new ArrayList<>();
        long deadline = System.nanoTime() + Check.WAIT_MS * 1_000_000;
        while (records.size() < count) {
            Check.that(System.nanoTime() < deadline, records.size() + " of " + count + " records within " + Check.WAIT_MS + " ms");
            consumer.poll(Duration.ofMillis(200)).forEach(records::add);
        }
        return records;
    }

    /** The values of all records of a partition, up to what the isolation level lets a reader see now. */
    List<String> readToEnd(String topic, int partition, String isolation) {
        TopicPartition place = new TopicPartition(topic, partition);
        List<String> values = new ArrayList<>();
        Map<String, Object> settings = reading(null, "isolation.level", isolation, "fetch.max.wait.ms", 20);
        try (Consumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(place));
            // With read_committed this is the last stable offset.
            long end = consumer.endOffsets(List.of(place)).get(place);
            long deadline = System.nanoTime() + Check.WAIT_MS * 1_000_000;
            while (consumer.position(place) < end) {
                Check.that(System.nanoTime() < deadline, "offset " + end + " of " + place + " was not reached");
                consumer.poll(Duration.ofMillis(50)).forEach(one -> values.add(one.value()));
            }
        }
        return values;
    }

    static <K, V> List<V> values(Collection<ConsumerRecord<K, V>> records) {
        return records.stream().map(ConsumerRecord::value).toList();
    }

    private Map<String, Object> reading(String group, Object... more) {
        Map<String, Object> settings = settings("auto.offset.reset", "earliest", "enable.auto.commit", false);
        if (group != null) {
            settings.put("group.id", group);
        }
        if (!Arrays.asList(more).contains("group.protocol")) {
            settings.put("heartbeat.interval.ms", 300);
        }
        settings.putAll(pairs(more));
        return settings;
    }

    private Map<String, Object> settings(Object... more) {
        Map<String, Object> settings = pairs(more);
        settings.put("bootstrap.servers", request.get("bootstrap").asText());
        return settings;
    }

    private static Map<String, Object> pairs(Object... flat) {
        Map<String, Object> pairs = new HashMap<>();
        for (int place = 0; place < flat.length; place += 2) {
            pairs.put((String) flat[place], flat[place + 1]);
        }
        return pairs;
    }

    private <T extends AutoCloseable> T keep(T client) {
        open.add(client);
        return client;
    }

    @Override
    public void close() throws Exception {
        Exception first = null;
        for (AutoCloseable client : open) {
            try {
                client.close();
            } catch (Exception error) {
                first = first == null ? error : first;
            }
        }
        if (first != null) {
            throw first;
        }
    }
}
