package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Resource is what is led by: a string that the processes agree on, or a topic, which may stay empty.
type Resource struct{ name, topic string }

// NameResource is any string. Its generation begins again with 1 once nobody owned it: it is no fencing token.
func NameResource(name string) Resource { return Resource{name: name} }

// TopicResource is a topic: nobody else writes there meanwhile, and its generation never falls, a fencing token.
func TopicResource(topic string) Resource { return Resource{topic: topic} }

const questions = 4

// Leadership owns a resource that all nodes agree on; nobody else leads by it until it is released or lost. It is used
// once: lead again by another Lead.
//
// The claim belongs to a connection and ends with it: when this process dies, and when the node does. Lost is closed at
// once where somebody takes it or the node dies; where the node or the network is silent, Config.Silence after the last
// question that the node answered was sent. The claim may be another's before that. A process that is stalled keeps its
// claim as long as its connection stands, unless somebody takes it with ExclusiveWithFencing, and cannot stop what it
// has sent elsewhere: let it write by a Producer, or to a store that compares the generation of a topic.
type Leadership struct {
	claim  *claim
	begin  time.Time
	heard  atomic.Int64 // time since begin when the last question was sent that was answered
	ending context.Context
	end    context.CancelFunc
	over   chan struct{}
	lost   chan struct{}
	mutex  sync.Mutex
	err    error
}

// Lead owns the resource; ctx ends the wait for others. Errors: ErrBusy, ErrFenced where somebody took it from all that
// waited, ErrUnavailable, ErrRefused. Whatever it returns, nothing stays owned then.
func Lead(ctx context.Context, config Config, resource Resource, mode Mode) (*Leadership, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	if resource == (Resource{}) {
		return nil, errors.New("the resource is empty")
	}
	l := &Leadership{
		claim: &claim{
			config: config, session: -1, resource: message(nil).text(1, resource.topic).text(3, resource.name),
		},
		begin: time.Now(), over: make(chan struct{}), lost: make(chan struct{}),
	}
	l.ending, l.end = context.WithCancel(context.Background())
	if err = l.claim.take(ctx, mode); err == nil {
		err = l.ask(ctx, 0, time.Now().Add(short))
	}
	if err != nil {
		l.end()
		l.claim.close()
		return nil, err
	}
	go l.keep()
	return l, nil
}

// Name is who leads, given or assigned.
func (l *Leadership) Name() string { return l.claim.config.Name }

// Generation is the one under which it leads or led, from 1 on.
func (l *Leadership) Generation() int64 { return l.claim.generation.Load() }

// IsLeader tells whether it leads, as far as a node answered within Config.Silence. It costs no request; once false, it
// is so for ever.
func (l *Leadership) IsLeader() bool { return l.Err() == nil && l.isFresh() }

// Lost is closed once it leads no more; Err says why.
func (l *Leadership) Lost() <-chan struct{} { return l.lost }

// Err is why it was lost: ErrFenced where it was taken, ErrUnavailable where its connection ended or the node was
// silent, ErrClosed after Release; nil before.
func (l *Leadership) Err() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.err
}

// Release lets go of it; returns when it is free for others, where the node answers.
func (l *Leadership) Release() {
	l.lose(ErrClosed)
	<-l.over
}

func (l *Leadership) keep() {
	defer close(l.over)
	defer l.claim.close()
	for l.ending.Err() == nil {
		if err := l.watch(); err != nil && l.ending.Err() == nil {
			l.lose(err)
		}
	}
	l.claim.release()
}

// watch returns why it is lost, nil while it stands.
func (l *Leadership) watch() error {
	silence := l.claim.config.Silence
	until := l.begin.Add(time.Duration(l.heard.Load()) + silence)
	if time.Now().After(until) {
		return fmt.Errorf("%w: no node vouched for the claim for %s", ErrUnavailable, silence)
	}
	owner, told := l.claim.owner, make(chan error, 1)
	asking, stop := context.WithCancel(l.ending)
	defer stop()
	go func() { told <- l.ask(asking, silence/questions, until) }()
	var err error
	select {
	case err = <-told:
	case <-owner.gone: // severed by the successor, which the node may be about to report
		select {
		case err = <-told:
		case <-time.After(again):
			stop()
			err = <-told
		}
	}
	if err == nil {
		limited, cancel := context.WithDeadline(l.ending, until)
		err = l.claim.touch(limited)
		cancel()
	}
	switch {
	case errors.Is(err, errMoved):
		return fmt.Errorf("%w: %s", ErrFenced, err)
	case err == nil || errors.Is(err, ErrUnavailable) && owner.isOpen():
		if err != nil {
			pause(l.ending, again)
		}
		return nil
	case errors.Is(err, ErrUnavailable):
		return fmt.Errorf("%w: the node ended the connection, and with it the claim", ErrUnavailable)
	}
	return err
}

func (l *Leadership) ask(ctx context.Context, wait time.Duration, until time.Time) error {
	limited, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	sent := time.Since(l.begin)
	err := l.claim.watch(limited, wait)
	if err == nil {
		l.heard.Store(int64(sent))
	}
	return err
}

func (l *Leadership) isFresh() bool {
	return time.Since(l.begin)-time.Duration(l.heard.Load()) <= l.claim.config.Silence
}

func (l *Leadership) lose(err error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.err == nil {
		l.err = err
		close(l.lost)
		l.end()
	}
}
