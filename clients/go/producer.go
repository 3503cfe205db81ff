package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	idHeader   = "sidecar-sequence-id"
	nameHeader = "sidecar-producer-name"
	watchWait  = 10 * time.Second
	watchLimit = 15 * time.Second
)

// NextID has a record numbered: one above the last id, or without id on a topic without deduplication.
const NextID int64 = -1

// Receipt is a record that is in the log.
type Receipt struct {
	Partition  int32
	Offset     int64 // -1 where it is not known: of a duplicate, and of a record whose first answer was lost
	SequenceID int64 // -1 on a topic without deduplication
	Duplicate  bool  // the log had this id before this producer opened, so nothing was written
	Generation int64 // under which this producer owns the topic, from 1 on
}

// Producer owns a topic and writes to it; no other producer can until it is closed or loses the topic (PIP-68).
type Producer struct {
	topic       string
	claim       *claim
	client      *kgo.Client
	numbering   *numbering
	partitioner kgo.TopicPartitioner
	count       int32
	turn        sync.Mutex // for the order of records alone
	round       int64
	asking      chan chan struct{}
	ending      context.Context
	end         context.CancelFunc
	over        chan struct{} // closed once nobody watches the claim any more
	lost        chan struct{}
	mutex       sync.Mutex
	failure     error
}

// Open owns the topic, without writing a record; ctx ends the wait for other owners. More settings of the kgo.Client
// that writes are options: those of Config, idempotence, acks and the partitioner are set here.
//
// Errors: ErrBusy; ErrFenced where a fencing producer came while this one waited; ErrUnavailable; ErrRefused, of a topic
// that does not exist too. Whatever it returns, nothing stays open then.
func Open(ctx context.Context, config Config, topic string, mode Mode, options ...kgo.Opt) (*Producer, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	p := &Producer{
		topic: topic, partitioner: kgo.StickyKeyPartitioner(nil).ForTopic(topic),
		claim:  &claim{config: config, topic: topic, resource: message(nil).text(1, topic), session: -1},
		asking: make(chan chan struct{}), over: make(chan struct{}), lost: make(chan struct{}),
	}
	p.ending, p.end = context.WithCancel(context.Background())
	if err := p.open(ctx, mode, options); err != nil {
		p.end()
		p.claim.release()
		p.claim.close()
		if p.client != nil {
			p.client.Close()
		}
		return nil, err
	}
	go p.keep()
	return p, nil
}

func (p *Producer) open(ctx context.Context, mode Mode, options []kgo.Opt) error {
	config := p.claim.config
	generation, err := p.claim.lastGeneration(ctx)
	if err != nil {
		return err
	}
	// The generation that the topic will most likely be owned under. A batch that comes when it is another's, or was
	// meanwhile, bears a lower one and is refused, even where the topic is free again.
	id := fmt.Sprintf("%s;mode=exclusive;generation=%d;", config.Name, generation+1)
	options = append(options, kgo.SeedBrokers(config.Bootstrap...), kgo.ClientID(id), kgo.Dialer(config.Dial),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordDeliveryTimeout(config.Timeout))
	if config.SASL != nil {
		options = append(options, kgo.SASL(config.SASL))
	}
	if p.client, err = kgo.NewClient(options...); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, config.Timeout)
	defer cancel()
	if p.claim.session, _, err = p.client.ProducerID(limited); err != nil {
		return fmt.Errorf("%w: no producer id: %w", ErrUnavailable, err)
	}
	if err := p.claim.take(ctx, mode); err != nil {
		return err
	}
	last, err := p.claim.lastIDs(ctx)
	if err != nil {
		return err
	}
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{{Topic: &p.topic}}
	described, err := request.RequestWith(ctx, p.client)
	if err != nil {
		return err
	}
	p.count = int32(len(described.Topics[0].Partitions))
	p.numbering = newNumbering(p.topic, last, p.count)
	return nil
}

// Name is the producer's, given or assigned.
func (p *Producer) Name() string { return p.claim.config.Name }

// Generation is the one under which the topic is or was owned: it rises with each owner, from 1 on.
func (p *Producer) Generation() int64 { return p.claim.generation.Load() }

// LastSequenceID is where to resume: the least of LastSequenceIDs over all partitions, -1 where any has none.
func (p *Producer) LastSequenceID() int64 {
	p.numbering.Lock()
	defer p.numbering.Unlock()
	return p.numbering.lastID()
}

// LastSequenceIDs are the highest ids under this name that are in the log, by partition; absent: none.
func (p *Producer) LastSequenceIDs() map[int32]int64 {
	p.numbering.Lock()
	defer p.numbering.Unlock()
	return maps.Clone(p.numbering.last)
}

// Lost is closed once the topic is not owned any more: at once where another session takes it, or by Close. A node that
// cannot be reached is no loss.
func (p *Producer) Lost() <-chan struct{} { return p.lost }

// Err is why the topic was lost: ErrFenced mostly; nil before, and ErrClosed after Close.
func (p *Producer) Err() error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.failure
}

// SendSync is Send and waits for what becomes of the record.
func (p *Producer) SendSync(ctx context.Context, record *kgo.Record, id int64) (Receipt, error) {
	type outcome struct {
		receipt Receipt
		err     error
	}
	told := make(chan outcome, 1)
	p.Send(ctx, record, id, func(receipt Receipt, err error) { told <- outcome{receipt, err} })
	found := <-told
	return found.receipt, found.err
}

// Send writes a record under a sequence id that is above every id that this producer sent to the partition, or NextID.
// In each partition records stand in the order of the calls. A key decides the partition as in every Kafka client; a
// record without one goes to partition id modulo their number, so that one that is sent again goes there again. Topic,
// Partition and the sidecar's headers of the record are set here; those who wait for what becomes of it own it then.
//
// promise is called once, and returns soon: ErrFenced once the topic is lost (what was under way at that moment may have
// been written); ErrBusy where another live session writes under the name; ErrSequence; ErrUnavailable after
// Config.Timeout, and errors of ctx: it was not written; an error of Kafka's about the record. franz-go gives up no
// record that may be written: for that promise waits for what becomes of it, or for Close.
func (p *Producer) Send(ctx context.Context, record *kgo.Record, id int64, promise func(Receipt, error)) {
	if receipt, err := p.send(ctx, record, id, promise); err != nil || receipt.Duplicate {
		promise(receipt, err)
	}
}

func (p *Producer) send(
	ctx context.Context, record *kgo.Record, id int64, promise func(Receipt, error),
) (Receipt, error) {
	p.turn.Lock()
	defer p.turn.Unlock()
	if err := p.Err(); err != nil {
		return Receipt{}, err
	}
	for _, each := range record.Headers {
		if each.Key == idHeader || each.Key == nameHeader {
			return Receipt{}, fmt.Errorf("%w: the header %s is not yours to set", ErrRefused, each.Key)
		}
	}
	id, isDuplicate, err := p.number(record, id)
	receipt := Receipt{record.Partition, -1, id, isDuplicate, p.Generation()}
	if err == nil && !isDuplicate { // from here on the record is the client's
		p.client.Produce(ctx, record, func(record *kgo.Record, err error) { p.answered(record, id, err, promise) })
	}
	return receipt, err
}

func (p *Producer) number(record *kgo.Record, asked int64) (int64, bool, error) {
	p.numbering.Lock()
	defer p.numbering.Unlock()
	id, err := p.numbering.choose(asked)
	if err != nil {
		return id, false, err
	}
	record.Topic = p.topic
	switch {
	case record.Key != nil:
		record.Partition = int32(p.partitioner.Partition(record, int(p.count)))
	case id != noID:
		record.Partition = int32(id % int64(p.count))
	default:
		p.round++
		record.Partition = int32(p.round % int64(p.count))
	}
	if err := p.numbering.take(record.Partition, id, asked != NextID); err != nil {
		return id, false, err
	}
	if p.numbering.isDuplicate(record.Partition, id) {
		p.numbering.arrived(record.Partition, id, -1)
		return id, true, nil
	}
	if id != noID {
		header := kgo.RecordHeader{Key: idHeader, Value: strconv.AppendInt(nil, id, 10)}
		record.Headers = append(record.Headers[:len(record.Headers):len(record.Headers)], header)
	}
	return id, false, nil
}

func (p *Producer) answered(record *kgo.Record, id int64, err error, promise func(Receipt, error)) {
	p.numbering.Lock()
	offset := int64(-1)
	if err == nil {
		offset = p.numbering.arrived(record.Partition, id, record.Offset)
	} else {
		p.numbering.failed(record.Partition, id)
	}
	p.numbering.Unlock()
	if err == nil {
		promise(Receipt{record.Partition, offset, id, false, p.Generation()}, nil)
		return
	}
	if errors.Is(err, kerr.ProducerFenced) {
		p.lose(fmt.Errorf("%w: %w", ErrFenced, err))
	}
	if lost := p.Err(); lost != nil {
		promise(Receipt{}, lost)
		return
	}
	if errors.Is(err, kerr.PolicyViolation) || errors.Is(err, kerr.InvalidProducerEpoch) {
		go func() { // lost, or another session of the name
			p.ask()
			lost := p.Err()
			if lost == nil {
				lost = fmt.Errorf("%w: %w", ErrBusy, err)
			}
			promise(Receipt{}, lost)
		}()
		return
	}
	if errors.Is(err, kgo.ErrRecordTimeout) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	promise(Receipt{}, err)
}

// Close waits for what was sent, as long as ctx does, then gives the topic up; returns when it is free for others, where
// the node answers. What has no outcome by then fails, and may have been written. Nothing is sent again afterwards.
func (p *Producer) Close(ctx context.Context) {
	if p.Err() == nil {
		_ = p.client.Flush(ctx)
	}
	p.lose(ErrClosed)
	p.client.Close()
	<-p.over
}

// Owning -------------------------------------------------------------------------------------------------------------

func (p *Producer) lose(err error) {
	p.mutex.Lock()
	isFirst := p.failure == nil
	if isFirst {
		p.failure = err
	}
	p.mutex.Unlock()
	if isFirst {
		close(p.lost)
		p.end()
		if !errors.Is(err, ErrClosed) { // nothing that still waits may claim a topic that an operator released
			go p.client.Close()
		}
	}
}

// ask has a node asked whether the topic is owned still; Err says the rest.
func (p *Producer) ask() {
	told := make(chan struct{})
	select {
	case p.asking <- told:
	case <-p.over:
		return
	}
	select {
	case <-told:
	case <-p.over:
	}
}

// keep watches the claim and keeps it over reconnects; once it was lost it never asks for it again.
func (p *Producer) keep() {
	defer close(p.over)
	defer p.claim.close()
	unsure := false
	for p.ending.Err() == nil {
		err := p.watch(unsure)
		unsure = err != nil
		switch {
		case p.ending.Err() != nil:
		case err == nil:
		case errors.Is(err, ErrUnavailable):
			pause(p.ending, again)
		default:
			p.lose(err)
		}
	}
	if errors.Is(p.Err(), ErrClosed) {
		p.claim.release()
	}
}

func (p *Producer) watch(unsure bool) error {
	if unsure || !p.claim.owner.isOpen() {
		if err := p.claim.confirm(p.ending); err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeout(p.ending, watchLimit)
	defer cancel()
	told := make(chan error, 1)
	owner := p.claim.owner
	go func() { told <- p.claim.watch(limited, watchWait) }()
	var asked chan struct{}
	var err error
	select {
	case err = <-told:
	case <-owner.gone:
		cancel()
		err = <-told
		if err == nil || errors.Is(err, ErrUnavailable) {
			return ErrUnavailable
		}
	case asked = <-p.asking:
		cancel()
		<-told
		err = p.claim.confirm(p.ending)
		if err != nil && !errors.Is(err, ErrUnavailable) {
			p.lose(err)
		}
		close(asked)
	}
	if err == nil {
		err = p.claim.touch(limited)
		if asked != nil {
			return nil
		}
	}
	return err
}
