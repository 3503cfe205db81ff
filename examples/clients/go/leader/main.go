// franz-go: `leader BOOTSTRAP TOPIC NAME MODE` waits until it leads, then writes each line that it reads as a decision and
// acts on it. It ends with its input, and with 4 if it is deposed.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func makeCandidate(bootstrap, topic, name, mode string) (*kgo.Client, error) {
	return kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ClientID(name+";mode="+mode), // wait_for_exclusive, or exclusive_with_fencing
		kgo.ConnIdleTimeout(15*time.Minute),
		kgo.DefaultProduceTopic(topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), // partition 0, where a Record names no other
	)
}

// write returns the offset, or -1 for a retry that Kafka knew already. It waits while another process leads.
func write(client *kgo.Client, token, value string) (int64, error) {
	written, err := client.ProduceSync(context.Background(), kgo.KeyStringRecord(token, value)).First()
	if err != nil {
		return 0, err
	}
	return written.Offset, nil
}

// lead waits until this process leads. It returns its token, which is higher than that of every leader before.
func lead(client *kgo.Client, name string) (int64, error) {
	for {
		offset, err := write(client, "", name)
		if err != nil || offset >= 0 {
			return offset, err
		}
	}
}

// work returns true if the work is done, false if another process may have led in between.
func work(client *kgo.Client, token int64, decisions <-chan string) (bool, error) {
	for last := token; ; last++ {
		var decision string // "": a heartbeat
		var decided, more bool
		select {
		case decision, more = <-decisions:
			if !more {
				return true, nil
			}
			decided = true
		case <-time.After(time.Second):
		}
		offset, err := write(client, strconv.FormatInt(token, 10), decision)
		if err != nil || offset != last+1 { // a fence or a record is between the last write and this one
			return false, err
		}
		if decided {
			act(token, decision)
		}
	}
}

// act is your code. The target of its changes refuses a token that is lower than one it has seen.
func act(token int64, decision string) {
	fmt.Println("did", decision)
}

func run(client *kgo.Client, name string, decisions <-chan string) error {
	for {
		token, err := lead(client, name)
		if err != nil {
			return err
		}
		fmt.Println("leads", token) // read your state here: the leader before may have changed it
		if done, err := work(client, token, decisions); done || err != nil {
			return err
		}
	}
}

func lines() <-chan string {
	decisions := make(chan string)
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			decisions <- lines.Text()
		}
		close(decisions)
	}()
	return decisions
}

func main() {
	words := os.Args[1:]
	client, err := makeCandidate(words[0], words[1], words[2], words[3])
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if err := run(client, words[2], lines()); err != nil {
		fmt.Println("lost")
		log.Print(err)
		client.Close()
		os.Exit(4)
	}
}
