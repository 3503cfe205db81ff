package sidecar.client;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Utils;

/**
 * Owns a topic and writes to it; no other producer can until this one closes or loses the topic (PIP-68).
 *
 * <pre>{@code
 * try (var producer = ExclusiveProducer.open(
 *         Map.of("bootstrap.servers", "localhost:19092", "client.id", "billing"),
 *         "orders", AccessMode.WAIT_FOR_EXCLUSIVE, new StringSerializer(), new StringSerializer())) {
 *     for (long id = producer.lastSequenceId() + 1; id < lines.size(); id++) {
 *         producer.send(new ProducerRecord<>("orders", lines.get((int) id)), id);
 *     }
 * }
 * }</pre>
 *
 * <p>It wraps a KafkaProducer and takes its settings. {@code bootstrap.servers} names nodes; {@code client.id} is the
 * producer's name, also for sequence ids, used by one live producer at a time: 1 to 255 bytes of UTF-8 without ;.
 * Without one a unique name is assigned, under which nobody resumes. {@code max.block.ms} bounds how long {@code open}
 * tries while no node answers; waiting for other owners does not count. {@code delivery.timeout.ms} bounds a record.
 *
 * <p><b>Sequence ids</b> are on if the topic has deduplication (PIP-6). Without a {@code sequenceId} they count up from
 * {@link #lastSequenceId} + 1; once you give one, give all. After a restart an application goes on after
 * {@code lastSequenceId}, or sends everything again: what is in the log already is not sent, and its {@link Receipt}
 * has {@code duplicate}. A repeated record has to go to the same partition, so one without key and partition goes to
 * partition id modulo their number. A record that failed while a later one of its partition was written is lost to its
 * id: send one at a time if every record counts.
 *
 * <p>The topic has one owner: where its policy has the scope {@code partition}, {@code open} fails.
 *
 * <p>Safe for use by many threads; in each partition records stand in the order of the calls.
 */
public final class ExclusiveProducer<K, V> implements AutoCloseable {
    private static final String ID_HEADER = "sidecar-sequence-id";
    private static final String NAME_HEADER = "sidecar-producer-name";

    private final String name;
    private final String topic;
    private final Serializer<K> keySerializer;
    private final Serializer<V> valueSerializer;
    private final Duration closing;
    private final Claim claim;
    private final KafkaProducer<byte[], byte[]> producer;
    private final Numbering numbering;
    private final int partitions;
    private final Keeper keeper;
    private final AtomicBoolean closed = new AtomicBoolean();

    /**
     * Owns the topic, without writing a record.
     *
     * @param configs settings of a KafkaProducer, without serializers
     * @throws ProducerBusyException another session owns the topic or waits for it, and the mode does not wait
     * @throws ProducerFencedException a fencing producer came while this one waited
     * @throws TimeoutException no node could do it within {@code max.block.ms}
     * @throws KafkaException the topic does not exist, the login failed, a setting cannot be
     * @throws org.apache.kafka.common.errors.InterruptException the thread was interrupted; nothing stays open
     */
    public static <K, V> ExclusiveProducer<K, V> open(
            Map<String, ?> configs, String topic, AccessMode mode, Serializer<K> keySerializer,
            Serializer<V> valueSerializer) {
        var name = Names.of(configs);
        var all = new HashMap<String, Object>(configs);
        require(all, ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, "true");
        require(all, ProducerConfig.ACKS_CONFIG, "all", "-1");
        if (all.containsKey(ProducerConfig.TRANSACTIONAL_ID_CONFIG)) {
            throw new ConfigException("a governed topic takes no transactions: transactional.id cannot be set");
        }
        all.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        all.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        var settings = new ProducerConfig(all);
        var patience = Duration.ofMillis(settings.getLong(ProducerConfig.MAX_BLOCK_MS_CONFIG));
        var claim = new Claim(all, Resource.topic(topic), name);
        KafkaProducer<byte[], byte[]> producer = null;
        try {
            // The generation that the topic will most likely be owned under. A batch that comes when it is another's,
            // or was meanwhile, bears a lower one and is refused, even where the topic is free again.
            long generation = claim.lastGeneration(patience) + 1;
            all.put(ProducerConfig.CLIENT_ID_CONFIG, name + ";mode=exclusive;generation=" + generation + ";");
            producer = new KafkaProducer<>(all);
            claim.producerId = ProducerIds.await(producer, patience);
            claim.take(mode, patience);
            return new ExclusiveProducer<>(
                name, topic, keySerializer, valueSerializer, claim, producer, patience,
                Duration.ofMillis(settings.getInt(ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG)));
        } catch (Wire.WokenException impossible) {
            throw new IllegalStateException(impossible);
        } catch (RuntimeException error) {
            abandon(claim, producer);
            throw error;
        }
    }

    private static void abandon(Claim claim, KafkaProducer<?, ?> producer) {
        boolean interrupted = Thread.interrupted();
        try {
            claim.release();
            claim.close();
            if (producer != null) {
                producer.close(Duration.ZERO);
            }
        } finally {
            if (interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private ExclusiveProducer(
            String name, String topic, Serializer<K> keySerializer, Serializer<V> valueSerializer, Claim claim,
            KafkaProducer<byte[], byte[]> producer, Duration patience, Duration closing) throws Wire.WokenException {
        this.name = name;
        this.topic = topic;
        this.keySerializer = keySerializer;
        this.valueSerializer = valueSerializer;
        this.closing = closing;
        this.claim = claim;
        this.producer = producer;
        this.partitions = producer.partitionsFor(topic).size();
        this.numbering = new Numbering(topic, claim.lastIds(patience), partitions);
        this.keeper = new Keeper(claim, name + ", owner of " + topic);
        // Nothing that still waits here may claim a topic that an operator released.
        keeper.lost().thenRunAsync(() -> producer.close(Duration.ZERO), work -> new Thread(work, "end").start());
        keeper.start();
    }

    /** The producer's name, given or assigned. */
    public String name() {
        return name;
    }

    /** The generation under which the topic is or was owned: it rises with each owner, from 1 on. */
    public long generation() {
        return claim.generation();
    }

    /** Where to resume: the least of {@link #lastSequenceIds} over all partitions, -1 where any has none. */
    public long lastSequenceId() {
        return numbering.lastId();
    }

    /** The highest sequence id under this name that is in the log, by partition; absent: none. */
    public Map<Integer, Long> lastSequenceIds() {
        return numbering.lastIds();
    }

    /**
     * Completed once the topic is not owned any more: at once where another session takes it, or at {@link #close}. A
     * node that cannot be reached is no loss.
     */
    public CompletableFuture<Void> lost() {
        return keeper.lost().copy();
    }

    /** Why the topic was lost: mostly a ProducerFencedException; null while it is owned, and where it was let go of. */
    public KafkaException error() {
        return keeper.failure();
    }

    /** {@link #send(ProducerRecord, long)} under the next sequence id; without one on a topic that has none. */
    public CompletableFuture<Receipt> send(ProducerRecord<K, V> record) {
        return send(record, (Long) null);
    }

    /**
     * Writes a record. The future fails with ProducerFencedException once the topic is lost: final, a new producer is
     * needed, and what was under way at that moment may have been written; ProducerBusyException where another live
     * session writes under the name; Kafka's TimeoutException after {@code delivery.timeout.ms}: whether the record
     * will be written is not known then, and giving its id again is safe; Kafka's exception where the record itself is
     * refused. What depends on the future runs in the producer's own thread, as a Callback does: it returns soon and
     * does not send.
     *
     * @param sequenceId 0 or more, above every id that this producer sent to the partition
     * @throws SequenceException the id cannot be; nothing was sent
     * @throws IllegalArgumentException another topic, no such partition, or a header that is the sidecar's
     * @throws IllegalStateException the producer is closed
     */
    public CompletableFuture<Receipt> send(ProducerRecord<K, V> record, long sequenceId) {
        return send(record, Long.valueOf(sequenceId));
    }

    private CompletableFuture<Receipt> send(ProducerRecord<K, V> record, Long sequenceId) {
        check(record);
        var headers = new ProducerRecord<byte[], byte[]>(topic, null, null, null, null, record.headers()).headers();
        var key = keySerializer.serialize(topic, headers, record.key());
        var value = valueSerializer.serialize(topic, headers, record.value());
        var outcome = new CompletableFuture<Receipt>();
        synchronized (this) { // for the order alone: callbacks, without which this may wait for memory, do without
            if (closed.get()) {
                throw new IllegalStateException("the producer is closed");
            }
            if (keeper.failure() != null) {
                outcome.completeExceptionally(keeper.failure());
                return outcome;
            }
            long id = numbering.choose(sequenceId);
            var partition = partition(record.partition(), key, id);
            if (id != Numbering.NONE) {
                numbering.take(partition, id, sequenceId != null);
                if (numbering.isDuplicate(partition, id)) {
                    numbering.arrived(partition, id);
                    outcome.complete(new Receipt(partition, -1, id, true, generation()));
                    return outcome;
                }
                headers.add(ID_HEADER, Long.toString(id).getBytes(StandardCharsets.US_ASCII));
            }
            try {
                producer.send(
                    new ProducerRecord<>(topic, partition, record.timestamp(), key, value, headers),
                    (metadata, error) -> answered(metadata, error, id, outcome, partition));
            } catch (KafkaException | IllegalStateException error) { // the latter: it was closed meanwhile
                answered(null, error, id, outcome, partition);
            }
        }
        return outcome;
    }

    /**
     * Waits for what was sent, {@code delivery.timeout.ms} at most, then gives the topic up; returns when it is free
     * for others, where the node answers. What has no outcome by then fails, and may have been written. Nothing is sent
     * again afterwards. Repeating it is harmless.
     */
    @Override
    public void close() {
        if (!closed.compareAndSet(false, true)) {
            return;
        }
        producer.close(keeper.failure() == null ? closing : Duration.ZERO);
        keeper.close();
    }

    // Sending --------------------------------------------------------------------------------------------------------

    private void check(ProducerRecord<K, V> record) {
        if (!record.topic().equals(topic)) {
            throw new IllegalArgumentException("the producer owns " + topic + ", not " + record.topic());
        }
        if (record.headers().lastHeader(ID_HEADER) != null || record.headers().lastHeader(NAME_HEADER) != null) {
            throw new IllegalArgumentException(ID_HEADER + " and " + NAME_HEADER + " are not yours to set");
        }
        if (record.partition() != null && record.partition() >= partitions) {
            throw new IllegalArgumentException(topic + " has " + partitions + " partitions: no " + record.partition());
        }
    }

    /** Null where it does not matter: the KafkaProducer chooses. Keys are hashed as KafkaProducer hashes them. */
    private Integer partition(Integer asked, byte[] key, long id) {
        if (asked != null) {
            return asked;
        }
        if (key != null) {
            return Utils.toPositive(Utils.murmur2(key)) % partitions;
        }
        return id == Numbering.NONE ? null : Integer.valueOf((int) (id % partitions));
    }

    private void answered(
            RecordMetadata metadata, Exception error, long id, CompletableFuture<Receipt> outcome, Integer partition) {
        if (error == null) {
            numbering.arrived(partition, id);
            long offset = metadata.hasOffset() ? metadata.offset() : -1;
            outcome.complete(new Receipt(metadata.partition(), offset, id, false, generation()));
            return;
        }
        numbering.failed(partition, id);
        if (error instanceof ProducerFencedException) {
            keeper.lose(new ProducerFencedException(error.getMessage()));
        }
        if (keeper.failure() != null) {
            outcome.completeExceptionally(keeper.failure());
        } else if (error instanceof PolicyViolationException || error instanceof InvalidProducerEpochException) {
            var other = error instanceof PolicyViolationException
                ? new ProducerBusyException(error.getMessage()) : error;
            keeper.ask().thenRun(
                () -> outcome.completeExceptionally(keeper.failure() != null ? keeper.failure() : other));
        } else {
            outcome.completeExceptionally(error);
        }
    }

    private static void require(Map<String, Object> configs, String key, String... allowed) {
        var found = configs.putIfAbsent(key, allowed[0]);
        for (var each : allowed) {
            if (found == null || each.equals(found.toString())) {
                return;
            }
        }
        throw new ConfigException(key, found, "an exclusive producer needs " + allowed[0]);
    }
}
