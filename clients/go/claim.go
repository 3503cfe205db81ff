package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

const (
	ownKey = 1000 + iota
	releaseKey
	describeOwnersKey
	lastSequenceKey
	watchKey
)

const (
	again  = 100 * time.Millisecond
	short  = 5 * time.Second  // what a node answers out of its memory
	long   = 20 * time.Second // the node may take the topic over and read its log
	waitMs = 5_000
)

var (
	errWaiting = errors.New("it is still waited for")
	// The node does not know of the claim any more: a session asks another one, a connection's claim is gone.
	errMoved = fmt.Errorf("%w: the claim is not known any more", ErrUnavailable)
)

// claim is one claim by Own: the node found that can grant it, waited for, held by one connection and watched by
// another, since a Watch parks its connection (docs/reference/own-apis.md). One goroutine at a time uses it.
type claim struct {
	config     Config
	topic      string // empty: a string is claimed
	resource   []byte // encoded
	session    int64  // the producer id that it is bound to; -1: the connection
	generation atomic.Int64
	token      []byte
	address    string // of the node to ask first
	nodes      map[int32]string
	owner      *conn
	watcher    *conn
}

// take owns it, and waits as long as it takes where the mode says so.
func (c *claim) take(ctx context.Context, mode Mode) error {
	until := time.Now().Add(c.config.Timeout)
	c.token = newToken()
	for {
		err := c.tryToTake(ctx, mode)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errWaiting):
			until = time.Now().Add(c.config.Timeout)
			continue
		case !errors.Is(err, ErrUnavailable) || time.Now().After(until):
			return err
		}
		c.close()
		pause(ctx, again)
	}
}

func (c *claim) tryToTake(ctx context.Context, mode Mode) error {
	fresh, err := c.connect(ctx)
	if err != nil {
		return err
	}
	if fresh && c.session < 0 { // a place of the connection before has ended with that
		c.token = newToken()
	}
	wait := int64(0)
	if mode == WaitForExclusive {
		wait = waitMs
	}
	found, err := c.own(ctx, mode, nil, wait)
	if err == nil && found.code == timedOut && wait > 0 {
		return errWaiting
	}
	return c.granted(found, err)
}

// confirm shows the session on a new connection, or asks whether it owns still: under the generation that it had, so
// that a claim that passed on is refused for good.
func (c *claim) confirm(ctx context.Context) error {
	if _, err := c.connect(ctx); err != nil {
		return err
	}
	c.token = newToken()
	generation := c.generation.Load()
	found, err := c.own(ctx, Exclusive, &generation, 0)
	err = c.granted(found, err)
	if err != nil && !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%w: %s", ErrFenced, err)
	}
	return err
}

// watch waits for news of it. ErrFenced where it is lost, errMoved where this node does not know of it any more.
func (c *claim) watch(ctx context.Context, wait time.Duration) error {
	if !c.watcher.isOpen() {
		var err error
		if c.watcher, err = c.config.connect(ctx, c.address); err != nil {
			return err
		}
	}
	body := message(nil).bytes(1, c.token).number(2, wait.Milliseconds())
	found, err := c.ask(ctx, c.watcher, watchKey, body)
	if err == nil {
		err = settled(found.code, found.message)
	}
	for _, each := range found.owners {
		if err == nil {
			err = settled(each.code, each.message)
		}
		if err == nil {
			c.generation.Store(each.generation)
		}
	}
	return err
}

func settled(code int64, message string) error {
	switch code {
	case none, timedOut:
		return nil
	case notServing, unknownResource:
		return errMoved
	}
	return refusal(code, message)
}

// touch asks on the connection that holds the claim, which is silent otherwise: what forgets idle connections on the
// way does not, and a login that ends after a time is renewed.
func (c *claim) touch(ctx context.Context) error {
	_, err := c.owner.nodes(ctx)
	return err
}

// lastGeneration is that of the last owner, 0 where there was none.
func (c *claim) lastGeneration(ctx context.Context) (int64, error) {
	found, err := c.patiently(ctx, describeOwnersKey, message(nil).bytes(2, c.resource))
	return found.owner().generation, err
}

// lastIDs are the highest sequence ids of its name in the topic's log; nil for a topic without deduplication.
func (c *claim) lastIDs(ctx context.Context) (map[int32]int64, error) {
	found, err := c.patiently(ctx, lastSequenceKey, message(nil).text(1, c.topic).text(2, c.config.Name))
	if found.code == unknownResource {
		return nil, err
	}
	return found.lastIDs, err
}

// release gives it back, and waits for the node's word that it is free for others.
func (c *claim) release() {
	ctx, cancel := context.WithTimeout(context.Background(), short)
	defer cancel()
	if c.session >= 0 && !c.owner.isOpen() && c.address != "" { // a node keeps the place of a session that waited
		c.owner, _ = c.config.connect(ctx, c.address)
	}
	if c.owner.isOpen() && c.token != nil {
		_, _ = c.owner.call(ctx, releaseKey, 0, message(nil).bytes(2, c.resource).bytes(3, c.token))
	}
}

// close ends the connections, and with them the claim of a connection.
func (c *claim) close() {
	for _, each := range []*conn{c.watcher, c.owner} {
		if each != nil {
			each.Close()
		}
	}
	c.watcher, c.owner = nil, nil
}

func (c *claim) patiently(ctx context.Context, key uint16, body []byte) (answer, error) {
	for until := time.Now().Add(c.config.Timeout); ; pause(ctx, again) {
		_, err := c.connect(ctx)
		var found answer
		if err == nil {
			limited, cancel := context.WithTimeout(ctx, long)
			found, err = c.ask(limited, c.owner, key, body)
			cancel()
		}
		if err == nil && found.code != none && found.code != unknownResource {
			err = found.refusal()
		}
		switch {
		case err == nil:
			return found, nil
		case ctx.Err() != nil:
			return found, ctx.Err()
		case !errors.Is(err, ErrUnavailable) || time.Now().After(until):
			return found, err
		}
		c.close()
	}
}

func (c *claim) own(ctx context.Context, mode Mode, generation *int64, wait int64) (answer, error) {
	one := message(nil).bytes(1, c.resource)
	if generation != nil {
		one = one.present(2, *generation)
	}
	body := message(nil).bytes(2, one).number(3, int64(mode)).text(4, c.config.Name).bytes(5, c.token).
		number(6, wait).present(7, c.session)
	limited, cancel := context.WithTimeout(ctx, long+time.Duration(wait)*time.Millisecond)
	defer cancel()
	return c.ask(limited, c.owner, ownKey, body)
}

func (c *claim) granted(found answer, err error) error {
	switch {
	case err != nil:
		return err
	case found.code == notServing:
		c.close()
		c.address = c.nodes[found.owner().node]
		return found.refusal()
	case found.code != none:
		return found.refusal()
	}
	c.generation.Store(found.owner().generation)
	return nil
}

func (c *claim) ask(ctx context.Context, on *conn, key uint16, body []byte) (answer, error) {
	data, err := on.call(ctx, key, 0, body)
	if err != nil {
		return answer{}, err
	}
	return readAnswer(data, key == lastSequenceKey)
}

// connect tells whether a new connection was opened. It tries the node that was named last first, then all known ones.
func (c *claim) connect(ctx context.Context) (bool, error) {
	if c.owner.isOpen() {
		return false, nil
	}
	c.close()
	candidates := make([]string, 0, 1+len(c.nodes)+len(c.config.Bootstrap))
	if c.address != "" {
		candidates = append(candidates, c.address)
	}
	for _, each := range c.nodes {
		candidates = append(candidates, each)
	}
	var last error
	for index, each := range append(candidates, c.config.Bootstrap...) {
		if slices.Contains(candidates[:min(index, len(candidates))], each) {
			continue
		}
		if last = c.connectTo(ctx, each); last == nil {
			return true, nil
		}
		if !errors.Is(last, ErrUnavailable) {
			return false, last
		}
	}
	c.address = ""
	return false, last
}

func (c *claim) connectTo(ctx context.Context, address string) error {
	limited, cancel := context.WithTimeout(ctx, short)
	defer cancel()
	found, err := c.config.connect(limited, address)
	if err != nil {
		return err
	}
	nodes, err := found.nodes(limited)
	if err != nil {
		found.Close()
		return err
	}
	c.owner, c.address, c.nodes = found, address, nodes
	return nil
}

func pause(ctx context.Context, time_ time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(time_):
	}
}
