package matrix;

import static matrix.Check.same;
import static matrix.Check.that;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** Java client: being a member of a group. */
final class Groups {
    private static final Set<Integer> ALL = Set.of(0, 1, 2, 3);

    private Groups() {}

    static void register(Map<String, Worker.Scenario> scenarios) {
        scenarios.put("rebalance", Groups::rebalance);
        scenarios.put("static-membership", Groups::staticMembership);
        scenarios.put("cooperative", Groups::cooperative);
        scenarios.put("group-protocol-consumer", Groups::consumerProtocol);
        scenarios.put("commit-sync", Groups::commitSync);
        scenarios.put("commit-async", Groups::commitAsync);
    }

    /** A subscribed consumer polled by a thread of its own, as an application would; it remembers its rebalances. */
    private static final class Member implements ConsumerRebalanceListener {
        final List<Set<Integer>> assigned = new CopyOnWriteArrayList<>();
        final List<Set<Integer>> revoked = new CopyOnWriteArrayList<>();
        final List<ConsumerRecord<String, String>> read = new CopyOnWriteArrayList<>();
        final CompletableFuture<Void> end = new CompletableFuture<>();
        private final Consumer<String, String> consumer;
        private volatile Set<Integer> holds = Set.of();
        private volatile boolean leaving;
        private volatile boolean committing;

        Member(Cell cell, String group, String topic, Object... settings) {
            consumer = cell.consumer(group, settings);
            consumer.subscribe(List.of(topic), this);
            Thread thread = new Thread(this::run, "member");
            thread.setDaemon(true);
            thread.start();
        }

        private void run() {
            try (consumer) {
                while (!leaving) {
                    consumer.poll(Duration.ofMillis(50)).forEach(read::add);
                    holds = partitions(consumer.assignment());
                    if (committing) {
                        consumer.commitSync();
                        committing = false;
                    }
                }
            } catch (RuntimeException error) {
                end.completeExceptionally(error);
            }
            end.complete(null);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            revoked.add(partitions(partitions));
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            assigned.add(partitions(partitions));
        }

        Set<Integer> holds() {
            if (end.isCompletedExceptionally()) {
                end.join();
            }
            return holds;
        }

        Set<String> values() {
            return read.stream().map(ConsumerRecord::value).collect(Collectors.toSet());
        }

        void commit() throws Exception {
            committing = true;
            Check.until("the commit", () -> holds() != null && !committing);
        }

        void leave() throws Exception {
            leaving = true;
            end.get(Check.WAIT_MS, TimeUnit.MILLISECONDS);
        }
    }

    private static Set<Integer> partitions(Collection<TopicPartition> places) {
        return places.stream().map(TopicPartition::partition).collect(Collectors.toCollection(TreeSet::new));
    }

    private static Callable<Boolean> bothShare(Member first, Member second) {
        return () -> {
            Set<Integer> all = new HashSet<>(first.holds());
            all.addAll(second.holds());
            return first.holds().size() == 2 && second.holds().size() == 2 && all.equals(ALL);
        };
    }

    private static void writeToAll(Cell cell, String topic, int start) throws Exception {
        for (int partition = 0; partition < 4; partition++) {
            cell.write(topic, partition, start + 5 * partition, 5);
        }
    }

    private static Set<String> together(Member first, Member second) {
        Set<String> values = new HashSet<>(first.values());
        values.addAll(second.values());
        return values;
    }

    private static Object rebalance(Cell cell) throws Exception {
        String topic = cell.topic("topic", 4);
        String group = cell.name("group");
        Member first = new Member(cell, group, topic);
        Check.until("the first member holds all", () -> first.holds().equals(ALL));
        Member second = new Member(cell, group, topic);
        Check.until("two members share", bothShare(first, second));
        writeToAll(cell, topic, 0);
        Check.until("both read their part", () -> together(first, second).size() == 20);
        same(first.values().size() + second.values().size(), 20, "records read by both");
        first.commit();
        second.commit();
        second.leave();
        Check.until("the one that stays holds all", () -> first.holds().equals(ALL));
        writeToAll(cell, topic, 20);
        Check.until("it reads all", () -> first.values().containsAll(Producing.numbers(20, 40)));
        first.leave();
        same(first.read.size(), first.values().size(), "records read once");
        return null;
    }

    private static Object staticMembership(Cell cell) throws Exception {
        String topic = cell.topic("topic", 4);
        String group = cell.name("group");
        Member first = new Member(cell, group, topic, "group.instance.id", "one");
        Member second = new Member(cell, group, topic, "group.instance.id", "two");
        Check.until("two members share", bothShare(first, second));
        Set<String> described = Check.done(cell.admin().describeConsumerGroups(List.of(group)).all()).get(group).members().stream()
                .map(MemberDescription::groupInstanceId)
                .map(id -> id.orElse("none"))
                .collect(Collectors.toSet());
        same(described, Set.of("one", "two"), "instance ids in the description");
        int rebalances = first.assigned.size();
        Set<Integer> held = second.holds();
        second.leave();
        Member again = new Member(cell, group, topic, "group.instance.id", "two");
        Check.until("the second is back", () -> again.holds().equals(held));
        writeToAll(cell, topic, 0);
        Check.until("both read their part", () -> together(first, again).size() == 20);
        same(first.assigned.size(), rebalances, "rebalances of the member that stayed");
        first.leave();
        again.leave();
        return null;
    }

    private static Object cooperative(Cell cell) throws Exception {
        String topic = cell.topic("topic", 4);
        String group = cell.name("group");
        Object[] settings = {"partition.assignment.strategy", CooperativeStickyAssignor.class.getName()};
        Member first = new Member(cell, group, topic, settings);
        Check.until("the first member holds all", () -> first.holds().equals(ALL));
        Member second = new Member(cell, group, topic, settings);
        Check.until("two members share", bothShare(first, second));
        List<Set<Integer>> moved = first.revoked.stream().filter(partitions -> !partitions.isEmpty()).toList();
        same(moved, List.of(second.holds()), "partitions revoked from the first member");
        first.leave();
        second.leave();
        return null;
    }

    private static Object consumerProtocol(Cell cell) throws Exception {
        String topic = cell.topic("topic", 4);
        writeToAll(cell, topic, 0);
        Consumer<String, String> consumer = cell.consumer(cell.name("group"), "group.protocol", "consumer");
        consumer.subscribe(List.of(topic));
        same(new HashSet<>(Cell.values(Cell.take(consumer, 20))).size(), 20, "different values read");
        return null;
    }

    private static void resumeBehind(Cell cell, String topic, String group) {
        Consumer<String, String> consumer = cell.consumer(group);
        consumer.subscribe(List.of(topic));
        same(Cell.values(Cell.take(consumer, 5)), Producing.numbers(5, 10), "values read by the next member");
    }

    private static Object commitSync(Cell cell) throws Exception {
        String topic = cell.topic("topic", 1);
        String group = cell.name("group");
        cell.write(topic, 0, 0, 10);
        try (Consumer<String, String> consumer = cell.consumer(group, "max.poll.records", 5)) {
            consumer.subscribe(List.of(topic));
            same(Cell.take(consumer, 5).size(), 5, "records read");
            consumer.commitSync();
        }
        resumeBehind(cell, topic, group);
        return null;
    }

    private static Object commitAsync(Cell cell) throws Exception {
        String topic = cell.topic("topic", 1);
        String group = cell.name("group");
        TopicPartition place = new TopicPartition(topic, 0);
        cell.write(topic, 0, 0, 10);
        try (Consumer<String, String> consumer = cell.consumer(group, "max.poll.records", 5)) {
            consumer.subscribe(List.of(topic));
            same(Cell.take(consumer, 5).size(), 5, "records read");
            consumer.pause(List.of(place));
            List<Map<TopicPartition, OffsetAndMetadata>> committed = new ArrayList<>();
            List<Exception> failed = new ArrayList<>();
            consumer.commitAsync((offsets, error) -> {
                committed.add(offsets);
                if (error != null) {
                    failed.add(error);
                }
            });
            Check.until("the commit is reported", () -> consumer.poll(Duration.ofMillis(20)).isEmpty() && !committed.isEmpty());
            that(failed.isEmpty(), "the commit failed: " + failed);
            same(committed.get(0).get(place).offset(), 5L, "offset committed");
        }
        resumeBehind(cell, topic, group);
        return null;
    }
}
