// franz-go: `write BOOTSTRAP CLIENT_ID TOPIC` sends the sequence ids that it reads, one per line, and prints the outcome
// of each; `read BOOTSTRAP TOPIC GROUP COUNT` prints COUNT values of a topic or shadow.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func makeProducer(bootstrap, clientID string) (*kgo.Client, error) {
	return kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ClientID(clientID),
		kgo.ConnIdleTimeout(15*time.Minute), // the maximum
	)
}

func send(client *kgo.Client, topic, number string) string {
	record := &kgo.Record{
		Topic:   topic,
		Value:   []byte(number),
		Headers: []kgo.RecordHeader{{Key: "sidecar-sequence-id", Value: []byte(number)}},
	}
	err := client.ProduceSync(context.Background(), record).FirstErr()
	var code *kerr.Error
	if errors.As(err, &code) {
		return "error " + code.Message
	}
	if err != nil {
		return "error " + err.Error()
	}
	return "ok"
}

func write(bootstrap, clientID, topic string) {
	client, err := makeProducer(bootstrap, clientID)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(lines.Text(), send(client, topic, lines.Text()))
	}
}

func read(bootstrap, topic, group string, count int) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for count > 0 {
		fetches := client.PollRecords(context.Background(), count)
		if err := fetches.Err(); err != nil {
			log.Fatal(err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Println(string(record.Value))
			count--
		})
	}
	if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func main() {
	words := os.Args[1:]
	if words[0] == "write" {
		write(words[1], words[2], words[3])
		return
	}
	count, err := strconv.Atoi(words[4])
	if err != nil {
		log.Fatal(err)
	}
	read(words[1], words[2], words[3], count)
}
