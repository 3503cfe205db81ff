package matrix;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Consume, transform, produce by the Java client, as a process: {@code Copier BOOTSTRAP FROM TO GROUP TRANSACTIONAL_ID STOP_AT}.
 * What it does and tells is that of {@code tests/kafka/shadow/copier.py}; the tests are the same.
 */
public final class Copier {
    private Copier() {}

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String source = arguments[1];
        String target = arguments[2];
        int stopAt = Integer.parseInt(arguments[5]);
        KafkaProducer<String, String> producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", bootstrap, "transactional.id", arguments[4]), new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                Map.of(
                        "bootstrap.servers", bootstrap,
                        "group.id", arguments[3],
                        "auto.offset.reset", "earliest",
                        "enable.auto.commit", "false",
                        "session.timeout.ms", "6000",
                        "isolation.level", "read_committed",
                        "max.poll.records", "7"),
                new StringDeserializer(),
                new StringDeserializer());
        consumer.subscribe(List.of(source));
        int copied = 0;
        int number = 0;
        while (true) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
            if (records.isEmpty()) {
                if (atTheEnd(consumer)) {
                    break;
                }
                continue;
            }
            number++;
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> readTo = new HashMap<>();
            Map<TopicPartition, Long> first = new HashMap<>();
            for (ConsumerRecord<String, String> one : records) {
                TopicPartition place = new TopicPartition(one.topic(), one.partition());
                producer.send(new ProducerRecord<>(target, one.partition(), null, one.value() + "!"));
                readTo.put(place, new OffsetAndMetadata(one.offset() + 1));
                first.putIfAbsent(place, one.offset());
            }
            producer.flush();
            producer.sendOffsetsToTransaction(readTo, consumer.groupMetadata());
            if (number == stopAt) {
                System.out.println("sent");
                Thread.sleep(Long.MAX_VALUE);
            }
            if (number % 3 != 0) {
                producer.commitTransaction();
                copied += records.count();
            } else {
                producer.abortTransaction();
                first.forEach(consumer::seek);
            }
        }
        consumer.close();
        producer.close();
        System.out.println("done " + copied);
    }

    /** Whether there is nothing to read in any partition of those that it has; it has none while the group settles. */
    private static boolean atTheEnd(KafkaConsumer<String, String> consumer) {
        Map<TopicPartition, Long> ends = consumer.endOffsets(consumer.assignment());
        return !ends.isEmpty() && ends.entrySet().stream().allMatch(end -> consumer.position(end.getKey()) >= end.getValue());
    }
}
