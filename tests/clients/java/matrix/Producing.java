package matrix;

import static matrix.Check.failing;
import static matrix.Check.same;
import static matrix.Check.that;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;

/** Java client: producing. */
final class Producing {
    private static final long DAY_MS = 86_400_000L;
    private static final long FIRST_DAY_MS = 1_704_067_200_000L;

    private Producing() {}

    static void register(Map<String, Worker.Scenario> scenarios) {
        Stream.of("acks-0", "acks-1", "acks-all").forEach(feature -> scenarios.put(feature, Producing::acks));
        Stream.of("none", "gzip", "snappy", "lz4", "zstd").forEach(codec -> scenarios.put("compression-" + codec, Producing::compression));
        scenarios.put("idempotent", Producing::idempotent);
        scenarios.put("large-900k", Producing::large);
        scenarios.put("large-5m", Producing::veryLarge);
        scenarios.put("headers-tombstones", Producing::headersAndTombstones);
        scenarios.put("timestamps", Producing::timestamps);
        scenarios.put("auto-create", Producing::autoCreate);
    }

    private static Object acks(Cell cell) throws Exception {
        String topic = cell.topic("topic", 1);
        // Idempotence is this client's default, and only acks=all goes with it.
        Producer<String, String> producer = cell.argument().equals("all")
                ? cell.producer()
                : cell.producer("acks", cell.argument(), "enable.idempotence", false);
        List<Long> offsets = cell.send(producer, Cell.numbered(topic, 0, 0, 20));
        // Closed before anything is read: with acks=0 its last bytes are followed by the end of the connection.
        producer.close();
        if (!cell.argument().equals("0")) {
            same(offsets, LongStream.range(0, 20).boxed().toList(), "offsets reported");
        }
        Consumer<String, String> consumer = cell.consumer(null);
        consumer.assign(List.of(new TopicPartition(topic, 0)));
        same(Cell.values(Cell.take(consumer, 20)), numbers(0, 20), "values read");
        return null;
    }

    private static Object compression(Cell cell) throws Exception {
        String topic = cell.topic("topic", 1);
        List<ProducerRecord<String, String>> records = IntStream.range(0, 200)
                .mapToObj(number -> new ProducerRecord<>(topic, 0, "" + number, String.format("%06d", number).repeat(170)))
                .toList();
        cell.send(cell.producer("compression.type", cell.argument(), "linger.ms", 100), records);
        same(cell.readToEnd(topic, 0, "read_committed"), records.stream().map(ProducerRecord::value).toList(), "values");
        return null;
    }

    private static Object idempotent(Cell cell) throws Exception {
        String topic = cell.topic("topic", 3);
        List<ProducerRecord<String, String>> records = new ArrayList<>();
        for (int number = 0; number < 900; number++) {
            records.add(new ProducerRecord<>(topic, number % 3, null, "" + number));
        }
        cell.send(cell.producer("batch.size", 200), records);
        for (int partition = 0; partition < 3; partition++) {
            int remainder = partition;
            List<String> expected = numbers(0, 900).stream().filter(value -> Integer.parseInt(value) % 3 == remainder).toList();
            same(cell.readToEnd(topic, partition, "read_committed"), expected, "values of partition " + partition);
        }
        return null;
    }

    private static Object large(Cell cell) throws Exception {
        String topic = cell.topic("topic", 1);
        roundTrip(cell, topic, 900_000);
        return null;
    }

    private static Object veryLarge(Cell cell) throws Exception {
        roundTrip(cell, cell.topic("allowed", 1, "max.message.bytes", "6000000"), 5_242_880, "max.request.size", 6_000_000);
        String small = cell.topic("refused", 1);
        failing(RecordTooLargeException.class, () -> roundTrip(cell, small, 5_242_880, "max.request.size", 6_000_000));
        return null;
    }

    private static void roundTrip(Cell cell, String topic, int size, Object... settings) throws Exception {
        byte[] value = new byte[size];
        for (int place = 0; place < size; place++) {
            value[place] = (byte) place;
        }
        cell.send(cell.bytesProducer(settings), List.of(new ProducerRecord<>(topic, 0, null, value)));
        Consumer<byte[], byte[]> consumer = cell.bytesConsumer();
        consumer.assign(List.of(new TopicPartition(topic, 0)));
        that(Arrays.equals(Cell.take(consumer, 1).get(0).value(), value), "the value read is not the one written");
    }

    private static Object headersAndTombstones(Cell cell) throws Exception {
        String topic = cell.topic("topic", 1);
        byte[] every = new byte[256];
        for (int place = 0; place < every.length; place++) {
            every[place] = (byte) place;
        }
        List<Header> headers = List.of(
                new RecordHeader("a", new byte[] {1}),
                new RecordHeader("a", new byte[] {2}),
                new RecordHeader("empty", new byte[0]),
                new RecordHeader("null", null),
                new RecordHeader("größe", every));
        List<ProducerRecord<byte[], byte[]>> records = List.of(
                new ProducerRecord<>(topic, 0, bytes("k"), bytes("v"), headers),
                new ProducerRecord<>(topic, 0, null, bytes("no key")),
                new ProducerRecord<>(topic, 0, bytes("tombstone"), null),
                new ProducerRecord<>(topic, 0, bytes(""), bytes("")));
        cell.send(cell.bytesProducer(), records);
        Consumer<byte[], byte[]> consumer = cell.bytesConsumer();
        consumer.assign(List.of(new TopicPartition(topic, 0)));
        List<ConsumerRecord<byte[], byte[]>> read = Cell.take(consumer, 4);
        same(List.of(read.get(0).headers().toArray()), headers, "headers");
        for (int place = 0; place < 4; place++) {
            that(Arrays.equals(read.get(place).key(), records.get(place).key()), "key of record " + place);
            that(Arrays.equals(read.get(place).value(), records.get(place).value()), "value of record " + place);
        }
        return null;
    }

    private static Object timestamps(Cell cell) throws Exception {
        String topic = cell.topic("topic", 1);
        cell.send(cell.producer(), days(topic));
        Consumer<String, String> consumer = cell.consumer(null);
        consumer.assign(List.of(new TopicPartition(topic, 0)));
        List<ConsumerRecord<String, String>> read = Cell.take(consumer, 5);
        same(read.stream().map(ConsumerRecord::timestamp).toList(), days(topic).stream().map(ProducerRecord::timestamp).toList(), "timestamps");
        that(read.stream().allMatch(one -> one.timestampType() == TimestampType.CREATE_TIME), "not all are create times");
        return null;
    }

    private static Object autoCreate(Cell cell) throws Exception {
        String topic = cell.name("topic");
        cell.send(cell.producer(), Cell.numbered(topic, null, 0, 3));
        List<String> read = new ArrayList<>();
        Check.done(cell.admin().describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions()
                .forEach(partition -> read.addAll(cell.readToEnd(topic, partition.partition(), "read_committed")));
        same(read.stream().sorted().toList(), numbers(0, 3), "values read");
        return null;
    }

    /** Five records, one a day, the first on 1 January 2024, UTC. */
    static List<ProducerRecord<String, String>> days(String topic) {
        return IntStream.range(0, 5)
                .mapToObj(day -> new ProducerRecord<String, String>(topic, 0, FIRST_DAY_MS + day * DAY_MS, null, "day " + day))
                .toList();
    }

    static List<String> numbers(int start, int end) {
        return IntStream.range(start, end).mapToObj(number -> "" + number).toList();
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
