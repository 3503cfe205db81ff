"""What a node does with a request: one module per API or family, composed by `handler`.

| module | APIs | |
|---|---|---|
| `handler` | all | reads the header, looks the API up, calls its module; counts |
| `client` | | one client's name and its connections upstream |
| `produce` | Produce | pass whole, split by leader, or hand governed partitions over |
| `fetch` | Fetch | pass whole, or split into long polls that block nobody |
| `tables` | ListOffsets, OffsetForLeaderEpoch, DeleteRecords | pass whole, or split and merge |
| `metadata` | Metadata, DescribeCluster, FindCoordinator, ApiVersions | answered with nodes instead of brokers |
| `topic_partitions` | DescribeTopicPartitions | a broker's page, shown as Metadata shows topics |
| `groups`, `transactions` | groups, members, transactions, producer ids | passed to `coordinators`, or refused |
| `offset_fetch` | OffsetFetch | passed, or split by coordinator and merged |
| `topics`, `configs` | CreateTopics…, DescribeConfigs… | split, less what is refused; brokers are hidden |
| `merged` | ListGroups, DescribeLogDirs… | asked of the brokers that belong to this node, and merged |
| `asking` | ACLs, quotas, SCRAM | passed as they are |
| `own` | Own, Watch, DescribeOwners… | the sidecar's own; what is known of owners and ids: `owners`, `sequence_ids` |
| `asking` | | asks brokers on a client's own connections |
| `apis` | | which module handles which key |

There are two paths through this room. *Hot* APIs (Produce, Fetch, ListOffsets…) are handled by plain functions and may
be pipelined. All others run as one coroutine at a time per connection: requests after one wait until it has its
answer, as on a broker.
"""
