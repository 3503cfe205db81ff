"""Handles clients' requests: one module per API or family, composed by `handler`.

| module | APIs | |
|---|---|---|
| `handler` | all | reads the header, looks the API up, calls its module; counts |
| `client` | | one client's identity and its connections upstream |
| `produce` | Produce | forward whole, split by leader, or give governed partitions to `exclusive` |
| `fetch` | Fetch | forward whole, or split into long polls that block no other client |
| `tables`, `purging` | ListOffsets, OffsetForLeaderEpoch, DeleteRecords | forward whole, or split and merge |
| `metadata` | Metadata, DescribeCluster, FindCoordinator, ApiVersions | answered with nodes instead of brokers |
| `topic_partitions` | DescribeTopicPartitions | a broker's page, shown as Metadata shows topics |
| `groups`, `transactions` | groups, members, transactions, producer ids | forwarded by `coordinators`, or refused |
| `offset_fetch` | OffsetFetch | forwarded, or split by coordinator and merged |
| `topics`, `configs` | CreateTopics…, DescribeConfigs… | split, without refused parts; brokers are hidden |
| `merged` | ListGroups, DescribeLogDirs… | requested from this node's brokers, and merged |
| `asking` | ACLs, quotas, SCRAM | forwarded unchanged |
| `own` | Own, Watch, DescribeOwners… | the sidecar's own APIs; `owners` and `sequence_ids` look up owners and ids |
| `asking` | | asks brokers on a client's own connections |
| `apis` | | which module handles which key |

There are two paths through this room. *Hot* APIs (Produce, Fetch, ListOffsets…) are handled by plain functions and may
be pipelined. All others run as one coroutine at a time per connection: requests after one wait until it has its
answer, as on a broker.
"""
