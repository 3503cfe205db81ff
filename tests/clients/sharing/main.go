// Command sharing is a member of a share group (KIP-932): "sharing BOOTSTRAP TOPIC GROUP COUNT" accepts so many records
// at least, prints their values, and leaves. It fails if an acknowledgement is refused.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = time.Minute

func main() {
	count, err := strconv.Atoi(os.Args[4])
	must(err)
	var refused atomic.Pointer[error]
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.ConsumeTopics(os.Args[2]),
		kgo.ShareGroup(os.Args[3]),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			for _, result := range results {
				if result.Err != nil {
					refused.Store(&result.Err)
				}
			}
		}),
	)
	must(err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for found := 0; found < count; {
		fetches := client.PollFetches(ctx)
		must(fetches.Err0())
		for _, record := range fetches.Records() {
			record.Ack(kgo.AckAccept)
			fmt.Println(string(record.Value))
			found++
		}
	}
	client.Close() // sends what is left to acknowledge, on another connection than its ShareFetches
	if err := refused.Load(); err != nil {
		must(*err)
	}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
