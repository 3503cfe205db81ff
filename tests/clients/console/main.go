// Command console asks all that a console asks of a cluster, by kadm: Redpanda Console and others are built on it.
// "look BOOTSTRAP TOPIC TXN GROUP..." describes what there is, "edit BOOTSTRAP NAME" makes, changes and deletes,
// "versions BOOTSTRAP KEY..." guesses the version of Kafka, from all APIs and from all but these.
// It prints a line of JSON for each call: its name, what it returned, and its error.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

const patience = time.Minute

func say(call string, returned any, err error) {
	line := map[string]any{"call": call, "returned": returned}
	if err != nil {
		line["error"] = err.Error()
	}
	text, err := json.Marshal(line)
	must(err)
	fmt.Println(string(text))
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[2]))
	must(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch os.Args[1] {
	case "look":
		look(ctx, kadm.NewClient(client), os.Args[3], os.Args[4], os.Args[5:])
	case "versions":
		versions(ctx, kadm.NewClient(client), os.Args[3:])
	default:
		edit(ctx, client, kadm.NewClient(client), os.Args[3])
	}
}

// said prints what a call returned, under its name.
func said[T any](call string) func(T, error) {
	return func(returned T, err error) { say(call, returned, err) }
}

// settled is said, once a broker has heard of what the controller has changed.
func settled[T any](ctx context.Context, call string, read func() (T, error), seen func(T) bool) {
	returned, err := read()
	for err == nil && !seen(returned) && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
		returned, err = read()
	}
	say(call, returned, err)
}

func look(ctx context.Context, admin *kadm.Client, topic, txn string, groups []string) {
	set := kadm.TopicsSet{}
	set.Add(topic, 0, 1)
	said[kadm.Metadata]("BrokerMetadata")(admin.BrokerMetadata(ctx))
	said[kadm.TopicDetails]("ListTopics")(admin.ListTopics(ctx, topic))
	said[kadm.ResourceConfigs]("DescribeTopicConfigs")(admin.DescribeTopicConfigs(ctx, topic))
	brokers, err := admin.ListBrokers(ctx)
	must(err)
	said[kadm.ResourceConfigs]("DescribeBrokerConfigs")(admin.DescribeBrokerConfigs(ctx, brokers.NodeIDs()...))
	said[kadm.DescribedAllLogDirs]("DescribeAllLogDirs")(admin.DescribeAllLogDirs(ctx, set))
	said[kadm.ListedConfigResources]("ListConfigResources")(admin.ListConfigResources(ctx))
	said[kadm.BrokersApiVersions]("ApiVersions")(admin.ApiVersions(ctx))

	said[kadm.ListedGroups]("ListGroups")(admin.ListGroups(ctx))
	said[kadm.ListedGroups]("ListGroupsByType")(admin.ListGroupsByType(ctx, []string{"share"}))
	said[kadm.DescribedGroups]("DescribeGroups")(admin.DescribeGroups(ctx, groups[0]))
	said[kadm.DescribedConsumerGroups]("DescribeConsumerGroups")(admin.DescribeConsumerGroups(ctx, groups[1]))
	said[kadm.DescribedShareGroups]("DescribeShareGroups")(admin.DescribeShareGroups(ctx, groups[2]))
	said[kadm.DescribedShareGroupsOffsets]("DescribeShareGroupOffsets")(admin.DescribeShareGroupOffsets(ctx, groups[2]))
	said[kadm.DescribedGroupLags]("Lag")(admin.Lag(ctx, groups[0], groups[1]))
	say("FetchManyOffsets", admin.FetchManyOffsets(ctx, groups[0], groups[1]), nil)

	said[kadm.ListedOffsets]("ListStartOffsets")(admin.ListStartOffsets(ctx, topic))
	said[kadm.ListedOffsets]("ListEndOffsets")(admin.ListEndOffsets(ctx, topic))
	said[kadm.ListedOffsets]("ListCommittedOffsets")(admin.ListCommittedOffsets(ctx, topic))
	said[kadm.ListedOffsets]("ListMaxTimestampOffsets")(admin.ListMaxTimestampOffsets(ctx, topic))
	said[kadm.ListedOffsets]("ListLocalLogStartOffsets")(admin.ListLocalLogStartOffsets(ctx, topic))
	said[kadm.ListedOffsets]("ListLatestRemoteOffsets")(admin.ListLatestRemoteOffsets(ctx, topic))
	said[kadm.ListedOffsets]("ListOffsetsAfterMilli")(admin.ListOffsetsAfterMilli(ctx, 1, topic))
	epochs := kadm.OffsetForLeaderEpochRequest{}
	epochs.Add(topic, 0, 0)
	said[kadm.OffsetsForLeaderEpochs]("OffsetForLeaderEpoch")(admin.OffsetForLeaderEpoch(ctx, epochs))

	said[kadm.DescribedProducersTopics]("DescribeProducers")(admin.DescribeProducers(ctx, set))
	said[kadm.DescribedTransactions]("DescribeTransactions")(admin.DescribeTransactions(ctx, txn))
	said[kadm.ListedTransactions]("ListTransactions")(admin.ListTransactions(ctx, nil, nil))
	said[kadm.ListedTransactions]("ListTransactionsByTxPattern")(admin.ListTransactionsByTxPattern(ctx, nil, nil, txn))
	said[kadm.ListPartitionReassignmentsResponses]("ListPartitionReassignments")(
		admin.ListPartitionReassignments(ctx, nil))
	say("FindGroupCoordinators", admin.FindGroupCoordinators(ctx, groups...), nil)
	say("FindTxnCoordinators", admin.FindTxnCoordinators(ctx, txn), nil)

	everything := kadm.NewACLs().AnyResource().Allow().AllowHosts().Deny().DenyHosts().
		Operations(kadm.OpAny).ResourcePatternType(kmsg.ACLResourcePatternTypeAny)
	said[kadm.DescribeACLsResults]("DescribeACLs")(admin.DescribeACLs(ctx, everything))
	said[kadm.DescribedClientQuotas]("DescribeClientQuotas")(admin.DescribeClientQuotas(ctx, false, nil))
	said[kadm.DescribedUserSCRAMs]("DescribeUserSCRAMs")(admin.DescribeUserSCRAMs(ctx))
}

func versions(ctx context.Context, admin *kadm.Client, skipped []string) {
	found, err := admin.ApiVersions(ctx)
	must(err)
	skips := make([]int16, len(skipped))
	for index, key := range skipped {
		number, err := strconv.ParseInt(key, 10, 16)
		must(err)
		skips[index] = int16(number)
	}
	for _, broker := range found.Sorted() {
		keys := []int16{}
		broker.EachKeySorted(func(key, _, _ int16) { keys = append(keys, key) })
		returned := map[string]any{
			"keys": keys, "guess": broker.VersionGuess(), "without": broker.VersionGuess(kversion.SkipKeys(skips...)),
		}
		say(fmt.Sprintf("ApiVersions %d", broker.NodeID), returned, broker.Err)
	}
}

func edit(ctx context.Context, client *kgo.Client, admin *kadm.Client, name string) {
	value := func(text string) *string { return &text }
	set := kadm.TopicsSet{}
	set.Add(name, 0)
	said[kadm.CreateTopicResponses]("CreateTopics")(
		admin.CreateTopics(ctx, 1, 1, map[string]*string{"retention.ms": value("1000000")}, name))
	said[kadm.CreateTopicResponses]("CreateTopics again")(admin.CreateTopics(ctx, 1, 1, nil, name))
	for number := 0; number < 10; number++ {
		record := &kgo.Record{Topic: name, Value: fmt.Append(nil, number)}
		must(client.ProduceSync(ctx, record).FirstErr())
	}
	said[kadm.CreatePartitionsResponses]("UpdatePartitions")(admin.UpdatePartitions(ctx, 3, name))
	set.Add(name, 1, 2)
	said[kadm.AlterConfigsResponses]("AlterTopicConfigs")(
		admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "segment.ms", Value: value("2000000")}}, name))
	said[kadm.AlterConfigsResponses]("AlterTopicConfigsState")(
		admin.AlterTopicConfigsState(ctx, []kadm.AlterConfig{{Name: "cleanup.policy", Value: value("compact")}}, name))
	said[kadm.AlterConfigsResponses]("AlterTopicConfigs wrongly")(
		admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "no.such", Value: value("1")}}, name))
	settled(ctx, "DescribeTopicConfigs",
		func() (kadm.ResourceConfigs, error) { return admin.DescribeTopicConfigs(ctx, name) },
		func(found kadm.ResourceConfigs) bool {
			return slices.ContainsFunc(found[0].Configs, func(config kadm.Config) bool {
				return config.Key == "cleanup.policy" && config.MaybeValue() == "compact"
			})
		})
	said[kadm.AlterConfigsResponses]("AlterTopicConfigs back")(
		admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "cleanup.policy", Value: value("delete")}}, name))
	said[kadm.DeleteRecordsResponses]("DeleteRecords")(
		admin.DeleteRecords(ctx, kadm.Offsets{name: {0: {Topic: name, At: 4}}}))
	said[kadm.ListedOffsets]("ListStartOffsets")(admin.ListStartOffsets(ctx, name))
	said[kadm.ElectLeadersResults]("ElectLeaders")(admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, set))

	offsets := kadm.Offsets{name: {0: {Topic: name, At: 5, LeaderEpoch: -1}, 1: {Topic: name, Partition: 1, LeaderEpoch: -1}}}
	said[kadm.OffsetResponses]("CommitOffsets")(admin.CommitOffsets(ctx, name, offsets))
	said[kadm.OffsetResponses]("FetchOffsets")(admin.FetchOffsets(ctx, name))
	said[kadm.DeleteOffsetsResponses]("DeleteOffsets")(admin.DeleteOffsets(ctx, name, kadm.TopicsSet{name: {1: {}}}))
	said[kadm.OffsetResponses]("FetchOffsets later")(admin.FetchOffsets(ctx, name))
	said[kadm.DeleteGroupResponses]("DeleteGroups")(admin.DeleteGroups(ctx, name))
	said[kadm.DeleteGroupResponses]("DeleteGroups again")(admin.DeleteGroups(ctx, name))

	acls := kadm.NewACLs().Topics(name).Allow("User:" + name).AllowHosts("*").
		Operations(kadm.OpRead).ResourcePatternType(kadm.ACLPatternLiteral)
	said[kadm.CreateACLsResults]("CreateACLs")(admin.CreateACLs(ctx, acls))
	settled(ctx, "DescribeACLs",
		func() (kadm.DescribeACLsResults, error) { return admin.DescribeACLs(ctx, acls) },
		func(found kadm.DescribeACLsResults) bool { return len(found[0].Described) > 0 })
	said[kadm.DeleteACLsResults]("DeleteACLs")(admin.DeleteACLs(ctx, acls))
	user := kadm.UpsertSCRAM{User: name, Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "secret"}
	said[kadm.AlteredUserSCRAMs]("AlterUserSCRAMs")(admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{user}))
	settled(ctx, "DescribeUserSCRAMs",
		func() (kadm.DescribedUserSCRAMs, error) { return admin.DescribeUserSCRAMs(ctx, name) },
		func(found kadm.DescribedUserSCRAMs) bool { return len(found[name].CredInfos) > 0 })
	said[kadm.AlteredUserSCRAMs]("AlterUserSCRAMs back")(
		admin.AlterUserSCRAMs(ctx, []kadm.DeleteSCRAM{{User: name, Mechanism: kadm.ScramSha256}}, nil))
	quota := func(remove bool) []kadm.AlterClientQuotaEntry {
		return []kadm.AlterClientQuotaEntry{{
			Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &name}},
			Ops:    []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: 1e9, Remove: remove}},
		}}
	}
	said[kadm.AlteredClientQuotas]("AlterClientQuotas")(admin.AlterClientQuotas(ctx, quota(false)))
	clientID := kadm.DescribeClientQuotaComponent{Type: "client-id", MatchName: &name, MatchType: kmsg.QuotasMatchTypeExact}
	settled(ctx, "DescribeClientQuotas",
		func() (kadm.DescribedClientQuotas, error) {
			return admin.DescribeClientQuotas(ctx, true, []kadm.DescribeClientQuotaComponent{clientID})
		},
		func(found kadm.DescribedClientQuotas) bool { return len(found) > 0 })
	said[kadm.AlteredClientQuotas]("AlterClientQuotas back")(admin.AlterClientQuotas(ctx, quota(true)))
	said[kadm.DeleteTopicResponses]("DeleteTopics")(admin.DeleteTopics(ctx, name))
	said[kadm.DeleteTopicResponses]("DeleteTopics again")(admin.DeleteTopics(ctx, name))
}
