package matrix;

import static matrix.Check.done;
import static matrix.Check.failing;
import static matrix.Check.same;
import static matrix.Check.that;

import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.ResourceNotFoundException;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;

/** Java client: the Admin, for groups, rules, credentials, quotas and transactions. */
final class Administration {
    private Administration() {}

    static void register(Map<String, Worker.Scenario> scenarios) {
        scenarios.put("groups", Administration::groups);
        scenarios.put("groups-delete", Administration::deleteGroup);
        scenarios.put("group-offsets", Administration::groupOffsets);
        scenarios.put("group-offsets-alter", Administration::alterGroupOffsets);
        scenarios.put("group-offsets-delete", Administration::deleteGroupOffsets);
        scenarios.put("acls", Administration::acls);
        scenarios.put("scram", Administration::scram);
        scenarios.put("quotas", Administration::quotas);
        scenarios.put("producers", Administration::producers);
        scenarios.put("transactions", Administration::transactions);
    }

    /** A group whose only member has read and committed the five records of a topic of its own. */
    private static Consumer<String, String> reading(Cell cell, String topic, String group) throws Exception {
        cell.write(topic, 0, 0, 5);
        Consumer<String, String> consumer = cell.consumer(group);
        consumer.subscribe(List.of(topic));
        Cell.take(consumer, 5);
        consumer.commitSync();
        return consumer;
    }

    private static Object groups(Cell cell) throws Exception {
        String topic = cell.topic("topic", 1);
        String group = cell.name("group");
        reading(cell, topic, group);
        Collection<GroupListing> listed = done(cell.admin().listGroups().all());
        GroupListing found = listed.stream().filter(one -> one.groupId().equals(group)).findFirst().orElseThrow();
        same(found.groupState().orElseThrow(), GroupState.STABLE, "state listed");
        ConsumerGroupDescription described = done(cell.admin().describeConsumerGroups(List.of(group)).all()).get(group);
        same(described.groupState(), GroupState.STABLE, "state described");
        same(described.members().size(), 1, "members");
        Set<TopicPartition> assigned = described.members().iterator().next().assignment().topicPartitions();
        same(assigned, Set.of(new TopicPartition(topic, 0)), "assignment of the only member");
        failing(GroupNotEmptyException.class, () -> done(cell.admin().deleteConsumerGroups(List.of(group)).all()));
        return null;
    }

    private static Object deleteGroup(Cell cell) throws Exception {
        String group = cell.name("group");
        reading(cell, cell.topic("topic", 1), group).close();
        done(cell.admin().deleteConsumerGroups(List.of(group)).all());
        failing(GroupIdNotFoundException.class, () -> done(cell.admin().deleteConsumerGroups(List.of(group)).all()));
        return null;
    }

    private static Map<Integer, Long> offsets(Cell cell, String group) throws Exception {
        return done(cell.admin().listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata()).entrySet().stream()
                .collect(Collectors.toMap(one -> one.getKey().partition(), one -> one.getValue().offset()));
    }

    private static Object groupOffsets(Cell cell) throws Exception {
        String group = cell.name("group");
        reading(cell, cell.topic("topic", 1), group);
        same(offsets(cell, group), Map.of(0, 5L), "offsets of the group");
        return null;
    }

    private static Object alterGroupOffsets(Cell cell) throws Exception {
        String topic = cell.topic("topic", 1);
        String group = cell.name("group");
        reading(cell, topic, group).close();
        TopicPartition place = new TopicPartition(topic, 0);
        done(cell.admin().alterConsumerGroupOffsets(group, Map.of(place, new OffsetAndMetadata(2))).all());
        same(offsets(cell, group), Map.of(0, 2L), "offsets of the group");
        Consumer<String, String> next = cell.consumer(group);
        next.subscribe(List.of(topic));
        same(Cell.values(Cell.take(next, 3)), List.of("2", "3", "4"), "values read by the next member");
        return null;
    }

    private static Object deleteGroupOffsets(Cell cell) throws Exception {
        String topic = cell.topic("topic", 1);
        String group = cell.name("group");
        reading(cell, topic, group).close();
        done(cell.admin().deleteConsumerGroupOffsets(group, Set.of(new TopicPartition(topic, 0))).all());
        same(offsets(cell, group), Map.of(), "offsets of the group");
        return null;
    }

    private static AclBinding rule(Cell cell, ResourceType type, PatternType pattern) {
        ResourcePattern resource = new ResourcePattern(type, cell.name("resource"), pattern);
        return new AclBinding(resource, new AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW));
    }

    private static Object acls(Cell cell) throws Exception {
        Set<AclBinding> rules =
                Set.of(rule(cell, ResourceType.TOPIC, PatternType.PREFIXED), rule(cell, ResourceType.GROUP, PatternType.LITERAL));
        AclBindingFilter filter = new AclBindingFilter(
                new ResourcePatternFilter(ResourceType.ANY, cell.name("resource"), PatternType.ANY), AccessControlEntryFilter.ANY);
        if (!cell.secured()) {
            failing(SecurityDisabledException.class, () -> done(cell.admin().createAcls(rules).all()));
            return "security is disabled";
        }
        done(cell.admin().createAcls(rules).all());
        Check.until("both are described", () -> new HashSet<>(done(cell.admin().describeAcls(filter).values())).equals(rules));
        same(new HashSet<>(done(cell.admin().deleteAcls(List.of(filter)).all())), rules, "rules deleted");
        Check.until("none is left", () -> done(cell.admin().describeAcls(filter).values()).isEmpty());
        return null;
    }

    private static Object scram(Cell cell) throws Exception {
        String user = cell.name("user");
        ScramCredentialInfo info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192);
        done(cell.admin().alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(user, info, "secret"))).all());
        Check.until("the credential", () -> credentials(cell, user).equals(List.of(info)));
        done(cell.admin().alterUserScramCredentials(List.of(new UserScramCredentialDeletion(user, info.mechanism()))).all());
        Check.until("none is left", () -> credentials(cell, user).isEmpty());
        return null;
    }

    private static List<ScramCredentialInfo> credentials(Cell cell, String user) throws Exception {
        try {
            return done(cell.admin().describeUserScramCredentials(List.of(user)).description(user)).credentialInfos();
        } catch (ExecutionException error) {
            that(error.getCause() instanceof ResourceNotFoundException, "without a credential: " + error.getCause());
            return List.of();
        }
    }

    private static Map<String, Double> quotas(Cell cell, ClientQuotaEntity entity, String user) throws Exception {
        ClientQuotaFilter filter = ClientQuotaFilter.containsOnly(List.of(ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.USER, user)));
        return done(cell.admin().describeClientQuotas(filter).entities()).getOrDefault(entity, Map.of());
    }

    private static Object quotas(Cell cell) throws Exception {
        String user = cell.name("user");
        String name = "producer_byte_rate";
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, user));
        for (Double rate : new Double[] {1_000_000.0, null}) {
            ClientQuotaAlteration.Op change = new ClientQuotaAlteration.Op(name, rate);
            done(cell.admin().alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(change)))).all());
            Map<String, Double> expected = rate == null ? Map.of() : Map.of(name, rate);
            Check.until("the quotas " + expected, () -> quotas(cell, entity, user).equals(expected));
        }
        return null;
    }

    private static Object producers(Cell cell) throws Exception {
        String topic = cell.topic("topic", 1);
        TopicPartition place = new TopicPartition(topic, 0);
        Producer<String, String> producer = cell.producer();
        for (int round = 0; round < 3; round++) {
            cell.send(producer, Cell.numbered(topic, 0, 0, 2));
        }
        List<ProducerState> found = done(cell.admin().describeProducers(List.of(place)).partitionResult(place)).activeProducers();
        same(found.size(), 1, "producers");
        same(found.get(0).lastSequence(), 5, "last sequence");
        same(found.get(0).producerEpoch(), 0, "epoch");
        return null;
    }

    private static Object transactions(Cell cell) throws Exception {
        String topic = cell.topic("topic", 1);
        String name = cell.name("txn");
        Producer<String, String> producer = Transactions.transactional(cell);
        producer.beginTransaction();
        cell.send(producer, Cell.numbered(topic, 0, 0, 2));
        TransactionListing listed = done(cell.admin().listTransactions().all()).stream()
                .filter(one -> one.transactionalId().equals(name))
                .findFirst()
                .orElseThrow();
        same(listed.state(), TransactionState.ONGOING, "state listed");
        TransactionDescription described = done(cell.admin().describeTransactions(List.of(name)).description(name));
        same(described.state(), TransactionState.ONGOING, "state described");
        same(described.topicPartitions(), Set.of(new TopicPartition(topic, 0)), "partitions of the transaction");
        same(described.producerId(), listed.producerId(), "producer id of the list and the description");
        producer.abortTransaction();
        Check.until("it is over", () -> {
            TransactionDescription now = done(cell.admin().describeTransactions(List.of(name)).description(name));
            return now.state() == TransactionState.COMPLETE_ABORT;
        });
        that(listed.producerId() >= 0, "no producer id");
        return null;
    }
}
