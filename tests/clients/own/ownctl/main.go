// Command ownctl asks the sidecar's own questions. A question is a message of control.proto in JSON; each line that it
// prints is one JSON object.
//
//	ownctl -watch own '{"claims": [{"resource": {"name": "leader"}}], "mode": "WAIT_FOR_EXCLUSIVE"}'
//	ownctl describe '{}'
//	ownctl last-sequence '{"topic": "orders", "producer_name": "billing"}'
//
// own holds what it was granted until standard input ends, then gives it back. Exit code: 0 done, 1 no node could be
// asked, 2 usage, 4 refused or lost.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"sidecar.example/own"
	pb "sidecar.example/own/controlpb"
)

var (
	client    own.Client
	bootstrap = flag.String("bootstrap", "127.0.0.1:19092", "addresses of nodes, host:port,…")
	patience  = flag.Duration("patience", 30*time.Second, "how long to try where no node answers; to wait in line has no end")
	watch     = flag.Bool("watch", false, "own: wait and hold by Watch, on a second connection, instead of by Own alone")
	wait      = flag.Duration("wait", 10*time.Second, "how long a Watch is parked")
	errLost   = errors.New("the connection ended, and the claim with it")
)

func main() {
	flag.StringVar(&client.ClientID, "client-id", "ownctl", "the client id of connections")
	flag.Int64Var(&client.Session, "producer-id", -1, "own: the session; -1: the connection")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: ownctl [flags] own|release|describe|last-sequence|watch REQUEST; -h lists the flags")
		os.Exit(2)
	}
	client.Bootstrap = strings.Split(*bootstrap, ",")
	err := run(flag.Arg(0), flag.Arg(1))
	var refusal *own.Refusal
	switch {
	case errors.As(err, &refusal):
		say("refused", nil, "error", refusal.Code.String(), "message", refusal.Message)
		os.Exit(4)
	case errors.Is(err, errLost):
		os.Exit(4)
	case err != nil:
		say("failed", nil, "message", err.Error())
		os.Exit(1)
	}
}

func run(command, text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), *patience)
	defer cancel()
	request, known := map[string]proto.Message{
		"own": &pb.OwnRequest{}, "release": &pb.ReleaseRequest{}, "watch": &pb.WatchRequest{},
		"describe": &pb.DescribeOwnersRequest{}, "last-sequence": &pb.LastSequenceRequest{},
	}[command]
	if !known {
		return fmt.Errorf("%s is no command", command)
	}
	if err := protojson.Unmarshal([]byte(text), request); err != nil {
		return err
	}
	switch request := request.(type) {
	case *pb.OwnRequest:
		return owning(request)
	case *pb.ReleaseRequest:
		return told("released", nil, client.ReleaseSome(ctx, request))
	case *pb.WatchRequest:
		return client.Watch(context.Background(), request, "", own.About{}, heard)
	case *pb.DescribeOwnersRequest:
		got, err := client.Describe(ctx, request)
		return told("described", got, err)
	case *pb.LastSequenceRequest:
		got, err := client.LastSequence(ctx, request)
		return told("known", got, err)
	}
	return nil
}

// owning claims and holds on until standard input ends or the claim is lost. A session that is no connection outlives
// the end of one: the same request again says whether it owns still.
func owning(request *pb.OwnRequest) error {
	over, end := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	for {
		if err := holding(over, request); !errors.Is(err, errLost) || client.Session < 0 {
			return err
		}
	}
}

// holding claims and holds on once, until the connection ends.
func holding(over context.Context, request *pb.OwnRequest) error {
	ctx, cancel := context.WithCancel(over)
	defer cancel()
	unanswered := time.AfterFunc(*patience, cancel)
	claim, err := client.Own(ctx, request, !*watch, func(got *pb.OwnResponse) {
		if unanswered.Stop() {
			say("waiting", got)
		}
	})
	unanswered.Stop()
	if err == nil {
		defer claim.Close()
		granted(claim)
		lost := make(chan error, 1)
		if *watch {
			go func() { lost <- watching(ctx, claim) }()
		}
		select {
		case err = <-lost: // where the token is no longer known, or moved, the same request again says what became of it
			if own.Moved(err) {
				err = errLost
			}
		case <-claim.Gone():
			say("ended", nil)
			err = errLost
		case <-over.Done():
		}
	}
	if over.Err() != nil {
		within, cancel := context.WithTimeout(context.Background(), *patience)
		defer cancel()
		err = told("released", nil, client.Release(within, request))
	}
	return err
}

// watching prints changes. A promotion is fetched at once: one that nobody fetches passes on to the next.
func watching(ctx context.Context, claim *own.Claim) error {
	request := &pb.WatchRequest{Token: claim.Request.Token, WaitMs: int32(wait.Milliseconds())}
	return client.Watch(ctx, request, claim.Address(), own.AboutClaims(claim.Request), func(change *pb.Ownership) error {
		err := heard(change)
		if err == nil && claim.Answer.Error != pb.Error_NONE {
			err = claim.Fetch(ctx)
			granted(claim)
		}
		return err
	})
}

func heard(change *pb.Ownership) error {
	say("changed", change)
	if change.Error != pb.Error_NONE {
		return &own.Refusal{Code: change.Error, Message: change.Message}
	}
	return nil
}

func granted(claim *own.Claim) {
	if claim.Answer.Error == pb.Error_NONE {
		say("granted", claim.Answer, "token", hex.EncodeToString(claim.Request.Token))
	}
}

func told(event string, answer proto.Message, err error) error {
	if err == nil {
		say(event, answer)
	}
	return err
}

var saying sync.Mutex

// say prints a line. An answer is in protobuf's own JSON: 64-bit numbers are strings there.
func say(event string, answer proto.Message, more ...string) {
	line := map[string]any{"event": event}
	if answer != nil {
		format := protojson.MarshalOptions{EmitUnpopulated: true, UseProtoNames: true}
		line["answer"] = json.RawMessage(format.Format(answer))
	}
	for index := 0; index < len(more); index += 2 {
		line[more[index]] = more[index+1]
	}
	saying.Lock()
	defer saying.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(line)
}
