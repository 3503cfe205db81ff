// Package client is a client library of the sidecar on franz-go: Open owns a topic and numbers its records, Lead elects
// one of many processes. Names and meanings are those of the SDK for Python.
package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
)

// What can go wrong; test with errors.Is. Errors of Kafka's (kerr) are passed on as they are.
var (
	// ErrFenced: it was lost to somebody else or by an operator's word. Final: begin anew.
	ErrFenced = errors.New("fenced")
	// ErrBusy: another session owns it or waits for it, or writes under the same name.
	ErrBusy = errors.New("busy")
	// ErrSequence: a sequence id that cannot be; nothing was sent.
	ErrSequence = errors.New("sequence id")
	// ErrUnavailable: no node answered in time.
	ErrUnavailable = errors.New("unavailable")
	// ErrRefused: a node refused it for another reason, which the message gives.
	ErrRefused = errors.New("refused")
	// ErrClosed: it was closed.
	ErrClosed = errors.New("closed")
)

// Mode says what happens where another session owns the resource or waits for it (PIP-68).
type Mode int32

// The numbers are those of control.proto.
const (
	Exclusive            Mode = 2 // ErrBusy
	WaitForExclusive     Mode = 3 // waits without a limit, first come first served
	ExclusiveWithFencing Mode = 4 // takes it; the owner and all that wait are deposed
)

// Config is how nodes are reached. Only Bootstrap is needed.
type Config struct {
	Bootstrap []string // host:port of nodes
	// Name is the producer's or candidate's: 1 to 255 bytes of UTF-8 without ;, used by one live producer at a time.
	// Without one a unique name is assigned, under which nobody resumes.
	Name string
	// Dial opens connections; for TLS the DialContext of a tls.Dialer. Nil: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	SASL sasl.Mechanism // nil: no login
	// Timeout is how long no node may answer, and how long a record may be on its way; 30 s where it is 0.
	Timeout time.Duration
	// Silence is how long a node may say nothing before a leadership counts as lost; 10 s where it is 0.
	Silence time.Duration
}

var noNames = regexp.MustCompile(`^(producer-\d+|rdkafka|sarama|kgo|kafkajs|aiokafka-.*|kafka-python-.*)$`)

func (c Config) complete() (Config, error) {
	if len(c.Bootstrap) == 0 {
		return c, errors.New("Bootstrap names no node")
	}
	if c.Name == "" {
		c.Name = fmt.Sprintf("sidecar-%x", newToken())
	}
	if len(c.Name) > 255 || strings.Contains(c.Name, ";") || strings.HasSuffix(c.Name, "…") || noNames.MatchString(c.Name) {
		return c, fmt.Errorf("name %.50q: 1 to 255 bytes of UTF-8 without ;, and no library's default", c.Name)
	}
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.Silence == 0 {
		c.Silence = 10 * time.Second
	}
	if c.Timeout < 0 || c.Silence < time.Second {
		return c, fmt.Errorf("Timeout is %s, Silence %s: above 0, and 1 s or more", c.Timeout, c.Silence)
	}
	return c, nil
}

func newToken() []byte {
	token := make([]byte, 16)
	_, _ = rand.Read(token)
	return token
}
