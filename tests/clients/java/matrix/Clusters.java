package matrix;

import static matrix.Check.done;
import static matrix.Check.same;
import static matrix.Check.that;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartitionInfo;

/** Java client: what it is told about the cluster, and whom it talks to. */
final class Clusters {
    private Clusters() {}

    static void register(Map<String, Worker.Scenario> scenarios) {
        scenarios.put("cluster", Clusters::cluster);
    }

    private static Object cluster(Cell cell) throws Exception {
        String topic = cell.topic("topic", 12);
        String group = cell.name("group");
        Producer<String, String> producer = cell.producer();
        for (int partition = 0; partition < 12; partition++) {
            cell.send(producer, Cell.numbered(topic, partition, 0, 1));
        }
        Producer<String, String> atomic = Transactions.transactional(cell);
        atomic.beginTransaction();
        cell.send(atomic, Cell.numbered(topic, 0, 1, 1));
        atomic.commitTransaction();
        Consumer<String, String> consumer = cell.consumer(group);
        consumer.subscribe(List.of(topic));
        Cell.take(consumer, 13);

        DescribeClusterResult described = cell.admin().describeCluster();
        Collection<Node> nodes = done(described.nodes());
        cell.onlyNodes(nodes, "the cluster description");
        cell.onlyNodes(List.of(done(described.controller())), "the controller");
        that(nodes.contains(done(described.controller())), "the controller is none of the nodes");
        that(!done(described.clusterId()).isEmpty(), "no cluster id");
        for (TopicPartitionInfo partition : done(cell.admin().describeTopics(List.of(topic)).allTopicNames()).get(topic).partitions()) {
            List<Node> on = new ArrayList<>(partition.replicas());
            on.addAll(partition.isr());
            on.add(partition.leader());
            cell.onlyNodes(on, "partition " + partition.partition() + " of the topic description");
            that(partition.isr().contains(partition.leader()), "the leader of partition " + partition.partition() + " is not in sync");
        }
        List<Node> leaders = new ArrayList<>();
        for (List<PartitionInfo> partitions : List.of(producer.partitionsFor(topic), consumer.partitionsFor(topic))) {
            partitions.forEach(partition -> leaders.add(partition.leader()));
        }
        cell.onlyNodes(leaders, "what the producer and the consumer know");
        Set<Integer> ids = nodes.stream().map(Node::id).collect(Collectors.toSet());
        cell.onlyNodes(
                List.of(done(cell.admin().describeConsumerGroups(List.of(group)).all()).get(group).coordinator()),
                "the coordinator of the group");
        TransactionDescription transaction =
                done(cell.admin().describeTransactions(List.of(cell.name("txn"))).description(cell.name("txn")));
        that(ids.contains(transaction.coordinatorId()), "the coordinator of the transaction, " + transaction.coordinatorId() + ", is no node");
        same(done(described.nodes()).size(), ids.size(), "nodes with an id of their own");
        cell.hold();
        return ids.size() + " node(s)";
    }
}
