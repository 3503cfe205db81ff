package matrix;

import static matrix.Check.done;
import static matrix.Check.failing;
import static matrix.Check.same;
import static matrix.Check.that;

import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DeletedRecords;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** Java client: the Admin, for topics, their configuration, records and replicas. */
final class Topics {
    private Topics() {}

    static void register(Map<String, Worker.Scenario> scenarios) {
        scenarios.put("topics", Topics::topics);
        scenarios.put("partitions", Topics::partitions);
        scenarios.put("topic-configs", Topics::incrementalConfigs);
        scenarios.put("broker-configs", Topics::brokerConfigs);
        scenarios.put("list-offsets", Topics::listOffsets);
        scenarios.put("delete-records", Topics::deleteRecords);
        scenarios.put("log-dirs", Topics::logDirs);
        scenarios.put("elect-leaders", Topics::electLeaders);
        scenarios.put("reassignments", Topics::reassignments);
    }

    private static List<Integer> described(Cell cell, String topic) throws Exception {
        return done(cell.admin().describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions().stream()
                .map(TopicPartitionInfo::partition)
                .toList();
    }

    private static Object topics(Cell cell) throws Exception {
        String topic = cell.topic("topic", 3, "retention.ms", "3600000");
        that(done(cell.admin().listTopics().names()).contains(topic), "the topic is not listed");
        same(described(cell, topic), List.of(0, 1, 2), "partitions described");
        failing(TopicExistsException.class, () -> cell.topic("topic", 1));
        done(cell.admin().deleteTopics(List.of(topic)).all());
        Check.until("the topic is gone", () -> !done(cell.admin().listTopics().names()).contains(topic));
        failing(UnknownTopicOrPartitionException.class, () -> done(cell.admin().deleteTopics(List.of(topic)).all()));
        return null;
    }

    private static Object partitions(Cell cell) throws Exception {
        String topic = cell.topic("topic", 2);
        done(cell.admin().createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all());
        Check.until("five partitions", () -> described(cell, topic).size() == 5);
        failing(
                InvalidPartitionsException.class,
                () -> done(cell.admin().createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all()));
        cell.write(topic, 4, 0, 3);
        same(cell.readToEnd(topic, 4, "read_committed").size(), 3, "records in the last of the new partitions");
        return null;
    }

    private static Config settings(Cell cell, ConfigResource.Type type, String name) throws Exception {
        ConfigResource resource = new ConfigResource(type, name);
        return done(cell.admin().describeConfigs(List.of(resource)).all()).get(resource);
    }

    private static String setting(Cell cell, String topic, String name) throws Exception {
        return settings(cell, ConfigResource.Type.TOPIC, topic).get(name).value();
    }

    private static void change(Cell cell, String topic, AlterConfigOp... changes) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        done(cell.admin().incrementalAlterConfigs(Map.of(resource, List.of(changes))).all());
    }

    private static AlterConfigOp op(AlterConfigOp.OpType type, String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), type);
    }

    private static Object incrementalConfigs(Cell cell) throws Exception {
        String topic = cell.topic("topic", 1, "retention.ms", "3600000", "segment.ms", "60000");
        same(setting(cell, topic, "retention.ms"), "3600000", "retention.ms");
        change(
                cell,
                topic,
                op(AlterConfigOp.OpType.SET, "retention.ms", "7200000"),
                op(AlterConfigOp.OpType.DELETE, "segment.ms", null),
                op(AlterConfigOp.OpType.APPEND, "cleanup.policy", "compact"));
        Check.until("the new value", () -> setting(cell, topic, "retention.ms").equals("7200000"));
        that(settings(cell, ConfigResource.Type.TOPIC, topic).get("segment.ms").isDefault(), "segment.ms was removed and is still there");
        Set<String> policy = new HashSet<>(Arrays.asList(setting(cell, topic, "cleanup.policy").split(",")));
        same(policy, Set.of("delete", "compact"), "cleanup.policy");
        failing(InvalidConfigurationException.class, () -> change(cell, topic, op(AlterConfigOp.OpType.SET, "retention.ms", "soon")));
        return null;
    }

    private static Object brokerConfigs(Cell cell) throws Exception {
        Collection<Node> nodes = done(cell.admin().describeCluster().nodes());
        for (Node node : nodes) {
            Config found = settings(cell, ConfigResource.Type.BROKER, node.idString());
            for (String name : List.of("log.retention.hours", "num.partitions", "min.insync.replicas")) {
                that(found.get(name).value().matches("[0-9]+"), name + " of node " + node.id() + " is " + found.get(name).value());
            }
        }
        return nodes.size() + " node(s)";
    }

    private static Object listOffsets(Cell cell) throws Exception {
        String topic = cell.topic("topic", 1);
        TopicPartition place = new TopicPartition(topic, 0);
        cell.send(cell.producer(), Producing.days(topic));
        Map<OffsetSpec, Long> expected = Map.of(
                OffsetSpec.earliest(), 0L,
                OffsetSpec.latest(), 5L,
                OffsetSpec.forTimestamp(Producing.days(topic).get(3).timestamp()), 3L,
                OffsetSpec.maxTimestamp(), 4L);
        for (Map.Entry<OffsetSpec, Long> one : expected.entrySet()) {
            long offset = done(cell.admin().listOffsets(Map.of(place, one.getKey())).partitionResult(place)).offset();
            same(offset, one.getValue(), "offset for " + one.getKey().getClass().getSimpleName());
        }
        return null;
    }

    private static Object deleteRecords(Cell cell) throws Exception {
        String topic = cell.topic("topic", 2);
        TopicPartition first = new TopicPartition(topic, 0);
        TopicPartition second = new TopicPartition(topic, 1);
        cell.write(topic, 0, 0, 5);
        cell.write(topic, 1, 0, 5);
        Map<TopicPartition, KafkaFuture<DeletedRecords>> deleted = cell.admin()
                .deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(3), second, RecordsToDelete.beforeOffset(-1)))
                .lowWatermarks();
        same(done(deleted.get(first)).lowWatermark(), 3L, "low watermark of partition 0");
        same(done(deleted.get(second)).lowWatermark(), 5L, "low watermark of partition 1");
        same(cell.readToEnd(topic, 0, "read_committed"), List.of("3", "4"), "records left in partition 0");
        same(cell.readToEnd(topic, 1, "read_committed"), List.of(), "records left in partition 1");
        return null;
    }

    private static Object logDirs(Cell cell) throws Exception {
        String topic = cell.topic("topic", 2);
        cell.write(topic, 0, 0, 5);
        List<Integer> nodes = done(cell.admin().describeCluster().nodes()).stream().map(Node::id).toList();
        Map<Integer, Map<String, LogDirDescription>> found = done(cell.admin().describeLogDirs(nodes).allDescriptions());
        same(found.keySet(), new HashSet<>(nodes), "nodes that answered");
        Map<Integer, Long> sizes = found.values().stream()
                .flatMap(folders -> folders.values().stream())
                .peek(folder -> that(folder.error() == null, "a log directory failed: " + folder.error()))
                .flatMap(folder -> folder.replicaInfos().entrySet().stream())
                .filter(replica -> replica.getKey().topic().equals(topic))
                .collect(Collectors.toMap(replica -> replica.getKey().partition(), replica -> replica.getValue().size(), Long::max));
        same(sizes.keySet(), Set.of(0, 1), "partitions found");
        that(sizes.get(0) > 0 && sizes.get(1) == 0, "sizes " + sizes);
        return nodes.size() + " node(s)";
    }

    private static Object electLeaders(Cell cell) throws Exception {
        String topic = cell.topic("topic", 2);
        Set<TopicPartition> places = Set.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
        Map<TopicPartition, Optional<Throwable>> results =
                done(cell.admin().electLeaders(ElectionType.PREFERRED, places).partitions());
        same(results.keySet(), places, "partitions answered");
        for (Optional<Throwable> result : results.values()) {
            that(result.isPresent() && result.get() instanceof ElectionNotNeededException, "result of an election: " + result);
        }
        return null;
    }

    private static Object reassignments(Cell cell) throws Exception {
        String topic = cell.topic("topic", 2);
        Set<TopicPartition> places = Set.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
        same(done(cell.admin().listPartitionReassignments(places).reassignments()), Map.of(), "reassignments of the topic");
        boolean moving = done(cell.admin().listPartitionReassignments().reassignments()).keySet().stream().anyMatch(places::contains);
        that(!moving, "the topic is being reassigned");
        return null;
    }
}
