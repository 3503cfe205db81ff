// Sarama: `write BOOTSTRAP CLIENT_ID TOPIC` sends the sequence ids that it reads, one per line, and prints the outcome
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

	"github.com/IBM/sarama"
)

func makeProducer(bootstrap, clientID string) (sarama.SyncProducer, error) {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0 // from 1.0.0 on a client id may contain ; and =
	config.ClientID = clientID
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Retry.Max = 1_000_000 // one try each 100 ms: a record may wait for the topic for a day
	config.Producer.Return.Successes = true
	return sarama.NewSyncProducer([]string{bootstrap}, config)
}

func send(producer sarama.SyncProducer, topic, number string) string {
	_, _, err := producer.SendMessage(&sarama.ProducerMessage{
		Topic:   topic,
		Value:   sarama.StringEncoder(number),
		Headers: []sarama.RecordHeader{{Key: []byte("sidecar-sequence-id"), Value: []byte(number)}},
	})
	var code sarama.KError
	if errors.As(err, &code) {
		return fmt.Sprintf("error %d", int16(code))
	}
	if err != nil {
		return "error " + err.Error()
	}
	return "ok"
}

func write(bootstrap, clientID, topic string) {
	producer, err := makeProducer(bootstrap, clientID)
	if err != nil {
		log.Fatal(err)
	}
	defer producer.Close()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(lines.Text(), send(producer, topic, lines.Text()))
	}
}

type handler struct {
	left int
	done context.CancelFunc
}

func (*handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		if h.left == 0 {
			break
		}
		fmt.Println(string(message.Value))
		session.MarkMessage(message, "")
		if h.left--; h.left == 0 {
			session.Commit()
			h.done()
		}
	}
	return nil
}

func read(bootstrap, topic, group string, count int) {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	consumer, err := sarama.NewConsumerGroup([]string{bootstrap}, group, config)
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	running, stop := context.WithCancel(context.Background())
	defer stop()
	for running.Err() == nil {
		if err := consumer.Consume(running, []string{topic}, &handler{count, stop}); err != nil {
			log.Fatal(err)
		}
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
