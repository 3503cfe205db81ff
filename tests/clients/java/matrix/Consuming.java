package matrix;

import static matrix.Check.same;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Java client: reading without being a member, and finding one's place. */
final class Consuming {
    private Consuming() {}

    static void register(Map<String, Worker.Scenario> scenarios) {
        scenarios.put("seek-ends", Consuming::seekEnds);
        scenarios.put("seek-timestamp", Consuming::seekTimestamp);
        scenarios.put("pause-resume", Consuming::pauseResume);
        scenarios.put("manual-assignment", Consuming::manualAssignment);
        scenarios.put("many-partitions", Consuming::manyPartitions);
    }

    private static List<String> firstTwo(Consumer<String, String> consumer) {
        return Cell.values(Cell.take(consumer, 2)).subList(0, 2);
    }

    private static Object seekEnds(Cell cell) throws Exception {
        String topic = cell.topic("topic", 1);
        TopicPartition place = new TopicPartition(topic, 0);
        Producer<String, String> producer = cell.producer();
        cell.send(producer, Cell.numbered(topic, 0, 0, 5));
        Consumer<String, String> consumer = cell.consumer(null);
        consumer.assign(List.of(place));
        Cell.take(consumer, 5);
        consumer.seekToBeginning(List.of(place));
        same(firstTwo(consumer), List.of("0", "1"), "values after seeking to the beginning");
        same(consumer.beginningOffsets(List.of(place)).get(place), 0L, "beginning");
        same(consumer.endOffsets(List.of(place)).get(place), 5L, "end");
        consumer.seekToEnd(List.of(place));
        same(consumer.position(place), 5L, "position after seeking to the end");
        cell.send(producer, List.of(new ProducerRecord<>(topic, 0, null, "at the end")));
        same(Cell.values(Cell.take(consumer, 1)), List.of("at the end"), "values after seeking to the end");
        consumer.seek(place, 3);
        same(firstTwo(consumer), List.of("3", "4"), "values after seeking to an offset");
        return null;
    }

    private static Object seekTimestamp(Cell cell) throws Exception {
        String topic = cell.topic("topic", 1);
        TopicPartition place = new TopicPartition(topic, 0);
        List<ProducerRecord<String, String>> days = Producing.days(topic);
        cell.send(cell.producer(), days);
        Consumer<String, String> consumer = cell.consumer(null);
        consumer.assign(List.of(place));
        OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(place, days.get(2).timestamp() - 1000)).get(place);
        same(found.offset(), 2L, "offset of the third day");
        same(found.timestamp(), days.get(2).timestamp(), "time of the third day");
        consumer.seek(place, found.offset());
        same(Cell.values(Cell.take(consumer, 3)), List.of("day 2", "day 3", "day 4"), "values from the third day on");
        Map<TopicPartition, OffsetAndTimestamp> late = consumer.offsetsForTimes(Map.of(place, days.get(4).timestamp() + 1));
        same(late, Collections.singletonMap(place, null), "offset behind the last day");
        return null;
    }

    private static Object pauseResume(Cell cell) throws Exception {
        String topic = cell.topic("topic", 2);
        TopicPartition paused = new TopicPartition(topic, 0);
        TopicPartition running = new TopicPartition(topic, 1);
        Consumer<String, String> consumer = cell.consumer(null);
        consumer.assign(List.of(paused, running));
        consumer.pause(List.of(paused));
        cell.write(topic, 0, 0, 10);
        cell.write(topic, 1, 0, 10);
        same(partitions(Cell.take(consumer, 10)), Set.of(1), "partitions read while one is paused");
        same(consumer.poll(Duration.ofMillis(1000)).count(), 0, "records of the paused partition");
        consumer.resume(List.of(paused));
        same(partitions(Cell.take(consumer, 10)), Set.of(0), "partitions read after resuming");
        return null;
    }

    private static Set<Integer> partitions(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::partition).collect(Collectors.toSet());
    }

    private static Object manualAssignment(Cell cell) throws Exception {
        String topic = cell.topic("topic", 3);
        for (int partition = 0; partition < 3; partition++) {
            cell.write(topic, partition, 0, 5);
        }
        Consumer<String, String> consumer = cell.consumer(null);
        consumer.assign(List.of(new TopicPartition(topic, 1), new TopicPartition(topic, 2)));
        consumer.seek(new TopicPartition(topic, 1), 2);
        List<String> places = Cell.take(consumer, 8).stream()
                .map(one -> one.partition() + "@" + one.offset() + "=" + one.value())
                .sorted()
                .toList();
        same(places, List.of("1@2=2", "1@3=3", "1@4=4", "2@0=0", "2@1=1", "2@2=2", "2@3=3", "2@4=4"), "records read");
        return null;
    }

    private static Object manyPartitions(Cell cell) throws Exception {
        List<String> topics = new ArrayList<>();
        List<ProducerRecord<String, String>> records = new ArrayList<>();
        for (int number = 0; number < 3; number++) {
            String topic = cell.topic("topic" + number, 20);
            topics.add(topic);
            for (int partition = 0; partition < 20; partition++) {
                records.addAll(Cell.numbered(topic, partition, 0, 10));
            }
        }
        cell.send(cell.producer("linger.ms", 20), records);
        Consumer<String, String> consumer = cell.consumer(cell.name("group"));
        consumer.subscribe(topics);
        Set<String> places = new HashSet<>();
        for (ConsumerRecord<String, String> one : Cell.take(consumer, 600)) {
            same(one.value(), "" + one.offset(), "value");
            places.add(one.topic() + "-" + one.partition() + "@" + one.offset());
        }
        same(places.size(), 600, "different places read");
        return null;
    }
}
