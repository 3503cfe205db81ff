import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

/**
 * The calls of Java's Admin that Kafka UI (kafbat) makes, with its options: {@code look BOOTSTRAP TOPIC GROUP...} describes what
 * there is, {@code edit BOOTSTRAP NAME} makes, changes and deletes. It prints a line for each call with all that does not name a
 * broker, or with the error.
 */
public final class Console {
    private static final long PATIENCE_S = 60;

    private final Admin admin;

    private Console(Admin admin) {
        this.admin = admin;
    }

    public static void main(String[] words) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", words[1]))) {
            Console console = new Console(admin);
            if (words[0].equals("look")) {
                console.look(words[2], List.of(words).subList(3, words.length));
            } else {
                console.edit(words[2]);
            }
        }
    }

    private static <T> T done(KafkaFuture<T> future) throws Exception {
        return future.get(PATIENCE_S, TimeUnit.SECONDS);
    }

    private static void say(String call, Callable<Object> asked) throws Exception {
        Object found;
        try {
            found = asked.call();
        } catch (ExecutionException error) {
            found = error.getCause().getClass().getSimpleName();
        }
        System.out.println(call + ": " + found);
    }

    /** As what was changed through one broker is not known at once to the next that is asked. */
    private static void settled(String call, Callable<Object> asked, Object expected) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (!asked.call().equals(expected) && System.nanoTime() < deadline) {
            Thread.sleep(20);
        }
        say(call, asked);
    }

    private Config configs(ConfigResource resource, boolean documented) throws Exception {
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(documented);
        return done(admin.describeConfigs(List.of(resource), options).all()).get(resource);
    }

    private static ConfigResource topicConfig(String topic) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic);
    }

    private void look(String topic, List<String> groups) throws Exception {
        DescribeClusterResult cluster = admin.describeCluster(new DescribeClusterOptions().includeAuthorizedOperations(true));
        Collection<Node> nodes = done(cluster.nodes());
        Node controller = done(cluster.controller());
        say("describeCluster", () -> List.of(
                done(cluster.clusterId()), new TreeSet<>(done(cluster.authorizedOperations())), nodes.contains(controller)));
        for (Node node : nodes) {
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, node.idString());
            Config found = done(admin.describeConfigs(List.of(broker)).all()).get(broker);
            TreeSet<String> names = found.entries().stream().map(ConfigEntry::name).collect(Collectors.toCollection(TreeSet::new));
            System.out.println("broker's configs: " + found.get("delete.topic.enable").value() + " " + names);
        }
        say("listTopics", () -> done(admin.listTopics(new ListTopicsOptions().listInternal(true)).names()).stream()
                .filter(name -> name.equals(topic) || name.equals("__consumer_offsets"))
                .sorted()
                .toList());
        TopicDescription described = done(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic);
        say("describeTopics", () -> described.partitions().stream()
                .map(each -> each.partition() + " " + nodes.contains(each.leader()) + " " + each.isr().equals(each.replicas()))
                .toList() + " " + described.topicId() + " " + described.isInternal());
        say("topic's configs", () -> configs(topicConfig(topic), true).entries().stream()
                .map(each -> each.name() + "=" + each.value() + " " + each.source() + " " + each.type() + " " + each.isReadOnly()
                        + " " + each.synonyms().size() + " " + each.documentation().length())
                .sorted()
                .toList());
        TreeMap<String, Long> sizes = new TreeMap<>();
        done(admin.describeLogDirs(nodes.stream().map(Node::id).toList()).allDescriptions()).values().stream()
                .flatMap(folders -> folders.values().stream())
                .flatMap(folder -> folder.replicaInfos().entrySet().stream())
                .filter(replica -> replica.getKey().topic().equals(topic))
                .forEach(replica -> sizes.merge(replica.getKey().toString(), replica.getValue().size(), Long::sum));
        System.out.println("describeLogDirs: " + sizes);

        say("listGroups", () -> done(admin.listGroups().all()).stream()
                .filter(each -> groups.contains(each.groupId()))
                .map(each -> each.groupId() + " " + each.type() + " " + each.protocol() + " " + each.groupState())
                .sorted()
                .toList());
        say("describeConsumerGroups", () -> new TreeMap<>(done(admin.describeConsumerGroups(groups).all())).values().stream()
                .map(each -> each.groupId() + " " + each.type() + " " + each.groupState() + " " + each.partitionAssignor() + " "
                        + nodes.contains(each.coordinator()) + " " + each.members())
                .toList());
        Map<String, ListConsumerGroupOffsetsSpec> specs = new HashMap<>();
        groups.forEach(group -> specs.put(group, new ListConsumerGroupOffsetsSpec().topicPartitions(null)));
        say("listConsumerGroupOffsets", () -> new TreeMap<>(done(admin.listConsumerGroupOffsets(specs).all())).values().stream()
                .map(Console::sorted)
                .toList());
        List<TopicPartition> places = described.partitions().stream().map(each -> new TopicPartition(topic, each.partition())).toList();
        for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(), OffsetSpec.forTimestamp(1))) {
            Map<TopicPartition, OffsetSpec> asked = places.stream().collect(Collectors.toMap(place -> place, place -> spec));
            say("listOffsets " + spec.getClass().getSimpleName(), () -> sorted(done(admin.listOffsets(asked).all())));
        }
        say("describeProducers", () -> sorted(done(admin.describeProducers(places).all())));
        say("describeAcls", () -> new TreeSet<>(done(admin.describeAcls(AclBindingFilter.ANY).values()).stream().map(Object::toString).toList()));
        say("describeClientQuotas", () -> sorted(done(admin.describeClientQuotas(ClientQuotaFilter.all()).entities())));
    }

    private static TreeMap<String, Object> sorted(Map<?, ?> found) {
        TreeMap<String, Object> lines = new TreeMap<>();
        found.forEach((key, value) -> lines.put(key.toString(), String.valueOf(value)));
        return lines;
    }

    private void alter(ConfigResource resource, AlterConfigOp.OpType type, String name, String value) throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), type);
        done(admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all());
    }

    private void edit(String name) throws Exception {
        TopicPartition first = new TopicPartition(name, 0);
        NewTopic topic = new NewTopic(name, Optional.of(2), Optional.empty()).configs(Map.of("retention.ms", "3600000"));
        say("createTopics", () -> done(admin.createTopics(List.of(topic)).all()));
        say("createTopics again", () -> done(admin.createTopics(List.of(topic)).all()));
        settled("createTopics later", () -> done(admin.listTopics().names()).contains(name), true);
        say("createPartitions", () -> done(admin.createPartitions(Map.of(name, NewPartitions.increaseTo(3))).all()));
        settled("createPartitions later", () -> done(admin.describeTopics(List.of(name)).allTopicNames()).get(name).partitions().size(), 3);
        ConfigResource config = topicConfig(name);
        say("set a config", () -> {
            alter(config, AlterConfigOp.OpType.SET, "retention.ms", "7200000");
            return "done";
        });
        settled("the config", () -> configs(config, false).get("retention.ms").value(), "7200000");
        say("unset it", () -> {
            alter(config, AlterConfigOp.OpType.DELETE, "retention.ms", null);
            return "done";
        });
        settled("the default", () -> configs(config, false).get("retention.ms").value(), "604800000");
        say("deleteRecords", () -> done(admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(-1))).all()));
        say("alterConsumerGroupOffsets", () -> done(admin.alterConsumerGroupOffsets(name, Map.of(first, new OffsetAndMetadata(0))).all()));
        say("listConsumerGroupOffsets", () -> sorted(done(admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata())));
        say("deleteConsumerGroupOffsets", () -> done(admin.deleteConsumerGroupOffsets(name, Set.of(first)).all()));
        say("deleteConsumerGroups", () -> done(admin.deleteConsumerGroups(List.of(name)).all()));
        say("deleteConsumerGroups again", () -> done(admin.deleteConsumerGroups(List.of(name)).all()));

        AclBinding rule = new AclBinding(
                new ResourcePattern(ResourceType.TOPIC, name, PatternType.PREFIXED),
                new AccessControlEntry("User:" + name, "*", AclOperation.READ, AclPermissionType.ALLOW));
        say("createAcls", () -> done(admin.createAcls(List.of(rule)).all()));
        settled("the rule", () -> done(admin.describeAcls(rule.toFilter()).values()).size(), 1);
        say("deleteAcls", () -> done(admin.deleteAcls(List.of(rule.toFilter())).all()).size());
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, name));
        for (Double rate : new Double[] {1e6, null}) {
            List<ClientQuotaAlteration.Op> change = List.of(new ClientQuotaAlteration.Op("producer_byte_rate", rate));
            say("alterClientQuotas", () -> done(admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, change))).all()));
            settled("the quota", () -> done(admin.describeClientQuotas(ClientQuotaFilter.all()).entities()).containsKey(entity), rate != null);
        }
        int broker = done(admin.describeCluster().controller()).id();
        NewPartitionReassignment moved = new NewPartitionReassignment(List.of(broker));
        say("alterPartitionReassignments", () -> done(admin.alterPartitionReassignments(Map.of(first, Optional.of(moved))).all()));
        TopicPartitionReplica replica = new TopicPartitionReplica(name, 0, broker);
        say("alterReplicaLogDirs", () -> done(admin.alterReplicaLogDirs(Map.of(replica, "/nowhere")).all()));
        say("set a broker's config", () -> {
            ConfigResource one = new ConfigResource(ConfigResource.Type.BROKER, String.valueOf(broker));
            alter(one, AlterConfigOp.OpType.DELETE, "log.retention.ms", null);
            return "done";
        });
        say("deleteTopics", () -> done(admin.deleteTopics(List.of(name)).all()));
        say("deleteTopics again", () -> done(admin.deleteTopics(List.of(name)).all()));
    }
}
