// Command peer is a process of its own for tests that kill or stop it: `write BOOTSTRAP NAME TOPIC MODE` and
// `lead BOOTSTRAP NAME RESOURCE MODE SILENCE_MS`, as Peer.java of clients/java.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"sidecar.example/client"
)

var modes = map[string]client.Mode{
	"EXCLUSIVE": client.Exclusive, "WAIT_FOR_EXCLUSIVE": client.WaitForExclusive,
	"EXCLUSIVE_WITH_FENCING": client.ExclusiveWithFencing,
}

var saying sync.Mutex

func say(format string, more ...any) {
	saying.Lock()
	defer saying.Unlock()
	fmt.Printf(format+"\n", more...)
}

func nameOf(err error) string {
	switch {
	case errors.Is(err, client.ErrFenced):
		return "fenced"
	case errors.Is(err, client.ErrBusy):
		return "busy"
	case errors.Is(err, client.ErrUnavailable):
		return "away"
	}
	return "refused"
}

// settings are those of PEER_SETTINGS, as Kafka has them.
func settings(config client.Config) client.Config {
	found := map[string]string{}
	for _, line := range strings.Split(os.Getenv("PEER_SETTINGS"), "\n") {
		name, value, _ := strings.Cut(line, "=")
		found[name] = value
	}
	if limit, err := strconv.Atoi(found["delivery.timeout.ms"]); err == nil {
		config.Timeout = time.Duration(limit) * time.Millisecond
	}
	if found["security.protocol"] != "SASL_SSL" {
		return config
	}
	pem, _ := os.ReadFile(found["ssl.truststore.location"])
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	config.Dial = (&tls.Dialer{Config: &tls.Config{RootCAs: roots}}).DialContext
	login := regexp.MustCompile(`username="(.*)" password="(.*)"`).FindStringSubmatch(found["sasl.jaas.config"])
	if found["sasl.mechanism"] == "PLAIN" {
		config.SASL = plain.Auth{User: login[1], Pass: login[2]}.AsMechanism()
	} else {
		config.SASL = scram.Auth{User: login[1], Pass: login[2]}.AsSha512Mechanism()
	}
	return config
}

func main() {
	arguments := os.Args[1:]
	config := settings(client.Config{Bootstrap: strings.Split(arguments[1], ","), Name: arguments[2]})
	lines := make(chan string)
	go func() {
		defer close(lines)
		for input := bufio.NewScanner(os.Stdin); input.Scan(); {
			lines <- input.Text()
		}
	}()
	if arguments[0] == "write" {
		write(config, arguments[3], modes[arguments[4]], lines)
		return
	}
	milliseconds, _ := strconv.Atoi(arguments[5])
	config.Silence = time.Duration(milliseconds) * time.Millisecond
	lead(config, client.NameResource(arguments[3]), modes[arguments[4]], lines)
}

func write(config client.Config, topic string, mode client.Mode, lines <-chan string) {
	ctx := context.Background()
	producer, err := client.Open(ctx, config, topic, mode)
	if err != nil {
		say("error %s: %s", nameOf(err), err)
		return
	}
	say("open %d %d", producer.Generation(), producer.LastSequenceID())
	go func() {
		<-producer.Lost()
		if !errors.Is(producer.Err(), client.ErrClosed) {
			say("lost %s", nameOf(producer.Err()))
		}
	}()
	for line := range lines {
		id, value, hasID := strings.Cut(line, " ")
		number := client.NextID
		if hasID {
			number, _ = strconv.ParseInt(id, 10, 64)
		} else {
			value = id
		}
		producer.Send(ctx, &kgo.Record{Value: []byte(value)}, number, func(found client.Receipt, err error) {
			if err != nil {
				say("error %s: %s", nameOf(err), err)
				return
			}
			say("ok %d %d %d %t %d", found.Partition, found.Offset, found.SequenceID, found.Duplicate, found.Generation)
		})
	}
	producer.Close(ctx)
	say("closed")
}

// lead leads again and again, and waits for it after the first time.
func lead(config client.Config, resource client.Resource, mode client.Mode, lines <-chan string) {
	ctx, end := context.WithCancel(context.Background())
	var mutex sync.Mutex
	var current *client.Leadership
	over := make(chan struct{})
	go func() {
		defer close(over)
		for ctx.Err() == nil {
			found, err := client.Lead(ctx, config, resource, mode)
			if err != nil {
				if ctx.Err() == nil && !errors.Is(err, client.ErrFenced) && !errors.Is(err, client.ErrUnavailable) {
					say("failed %s", nameOf(err))
					return
				}
				continue
			}
			mode = client.WaitForExclusive
			mutex.Lock()
			current = found
			mutex.Unlock()
			say("elected %d", found.Generation())
			select {
			case <-found.Lost():
			case <-ctx.Done():
				found.Release()
			}
			say("lost %s", nameOf(found.Err()))
		}
	}()
	for range lines {
		mutex.Lock()
		say("leads %t", current != nil && current.IsLeader())
		mutex.Unlock()
	}
	end()
	<-over
	say("closed")
}
