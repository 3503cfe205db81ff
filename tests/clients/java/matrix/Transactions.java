package matrix;

import static matrix.Check.done;
import static matrix.Check.same;

import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.FinalizedVersionRange;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Java client: transactions. */
final class Transactions {
    private Transactions() {}

    static void register(Map<String, Worker.Scenario> scenarios) {
        scenarios.put("txn-commit", Transactions::commit);
        scenarios.put("txn-abort", Transactions::abort);
        scenarios.put("txn-offsets", Transactions::offsets);
    }

    static Producer<String, String> transactional(Cell cell) {
        Producer<String, String> producer = cell.producer("transactional.id", cell.name("txn"));
        producer.initTransactions();
        return producer;
    }

    private static Object commit(Cell cell) throws Exception {
        String topic = cell.topic("topic", 1);
        Producer<String, String> producer = transactional(cell);
        for (int start = 0; start < 6; start += 3) {
            int epoch = epoch(cell);
            producer.beginTransaction();
            cell.send(producer, Cell.numbered(topic, 0, start, 3));
            same(cell.readToEnd(topic, 0, "read_uncommitted").size(), start + 3, "records seen uncommitted");
            same(cell.readToEnd(topic, 0, "read_committed").size(), start, "records seen committed, before the commit");
            producer.commitTransaction();
            int expected = start + 3;
            Check.until("the commit is seen", () -> cell.readToEnd(topic, 0, "read_committed").size() == expected);
            int raised = epoch + (version(cell) < 2 ? 0 : 1);
            Check.until("its epoch is " + raised, () -> epoch(cell) == raised);
        }
        return "transactions of version " + version(cell);
    }

    private static int epoch(Cell cell) throws Exception {
        String name = cell.name("txn");
        return done(cell.admin().describeTransactions(List.of(name)).description(name)).producerEpoch();
    }

    /** Of version 2 each transaction has an epoch of its own (KIP-890). */
    private static short version(Cell cell) throws Exception {
        FinalizedVersionRange range =
                done(cell.admin().describeFeatures().featureMetadata()).finalizedFeatures().get("transaction.version");
        return range == null ? 0 : range.maxVersionLevel();
    }

    private static Object abort(Cell cell) throws Exception {
        String topic = cell.topic("topic", 1);
        Producer<String, String> producer = transactional(cell);
        producer.beginTransaction();
        cell.send(producer, Cell.numbered(topic, 0, 0, 3));
        producer.abortTransaction();
        producer.beginTransaction();
        cell.send(producer, Cell.numbered(topic, 0, 3, 2));
        producer.commitTransaction();
        Check.until("the commit is seen", () -> !cell.readToEnd(topic, 0, "read_committed").isEmpty());
        same(cell.readToEnd(topic, 0, "read_committed"), List.of("3", "4"), "values seen committed");
        same(cell.readToEnd(topic, 0, "read_uncommitted"), Producing.numbers(0, 5), "values seen uncommitted");
        return null;
    }

    private static Object offsets(Cell cell) throws Exception {
        String source = cell.topic("in", 1);
        String target = cell.topic("out", 1);
        String group = cell.name("group");
        TopicPartition place = new TopicPartition(source, 0);
        cell.write(source, 0, 0, 5);
        Producer<String, String> producer = transactional(cell);
        try (Consumer<String, String> consumer = cell.consumer(group, "isolation.level", "read_committed", "max.poll.records", 3)) {
            consumer.subscribe(List.of(source));
            for (boolean committing : new boolean[] {true, false}) {
                List<ConsumerRecord<String, String>> records = Cell.take(consumer, committing ? 3 : 2);
                producer.beginTransaction();
                cell.send(producer, records.stream().map(one -> new ProducerRecord<String, String>(target, 0, null, one.value())).toList());
                producer.sendOffsetsToTransaction(
                        Map.of(place, new OffsetAndMetadata(consumer.position(place))), consumer.groupMetadata());
                if (committing) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                same(consumer.committed(java.util.Set.of(place)).get(place).offset(), 3L, "offset of the group");
            }
        }
        same(cell.readToEnd(target, 0, "read_committed"), Producing.numbers(0, 3), "values copied");
        Consumer<String, String> after = cell.consumer(group);
        after.subscribe(List.of(source));
        same(Cell.values(Cell.take(after, 2)), List.of("3", "4"), "values read by the next member");
        return null;
    }
}
