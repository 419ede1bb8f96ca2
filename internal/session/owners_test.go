package session_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/session"
	"github.com/execwire/execwire/internal/testproc"
)

// owners is one client that owns the processes of a session by an attachment and by streams
// in turn, and knows the next event of each.
type owners struct {
	t       *testing.T
	f       *fixture
	random  *rand.Rand
	session *session.Session
	want    []byte              // what each process writes
	a       *session.Attachment // nil: detached
	old     []*session.Attachment
	all     map[string]*streamOwned
}

// streamOwned is one process.
type streamOwned struct {
	process *session.Process
	stream  *session.Ownership // nil: no stream owns it
	lost    bool               // a stream owned it and was lost
	due     bool               // the feed must report that the process left
	at      uint64             // the last seq delivered to the current owner
	acked   uint64
	seen    uint64            // the last seq delivered to any owner
	ends    map[uint64]uint64 // offset after each event
	closed  uint64            // seq of the end; 0: not seen
}

func (o *owners) pick() *streamOwned {
	n := o.random.IntN(len(o.all))
	return o.all[fmt.Sprint(n)]
}

// between returns a seq that is valid in a call: acknowledged or later.
func (o *owners) between(p *streamOwned) uint64 { return p.acked + o.random.Uint64N(p.seen-p.acked+1) }

func (o *owners) check(p *streamOwned, batch eventlog.Batch) {
	o.t.Helper()
	if batch.Gap != nil {
		o.t.Fatalf("%s: a gap %+v after %d", p.process.ID(), batch.Gap, p.at)
	}
	for _, e := range batch.Events {
		if e.Seq != p.at+1 {
			o.t.Fatalf("%s: event %d follows %d; acknowledged is %d", p.process.ID(), e.Seq, p.at, p.acked)
		}
		begin := p.ends[e.Seq-1]
		if e.Kind == eventlog.Output && (e.Offset != begin || !bytes.Equal(e.Data, o.want[begin:begin+uint64(len(e.Data))])) {
			o.t.Fatalf("%s: event %d has other data, at %d", p.process.ID(), e.Seq, e.Offset)
		}
		end := begin + uint64(len(e.Data))
		if before, known := p.ends[e.Seq]; known && before != end {
			o.t.Fatalf("%s: event %d ends at %d, earlier it ended at %d", p.process.ID(), e.Seq, end, before)
		}
		p.ends[e.Seq] = end
		p.at, p.seen = e.Seq, max(p.seen, e.Seq)
		if e.Kind == eventlog.Closed {
			p.closed = e.Seq
		}
	}
}

// briefly returns a context for reads that may have no result.
func (o *owners) briefly() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(o.f.ctx, time.Millisecond, errNothing)
}

var errNothing = errors.New("no delivery")

func (o *owners) readFeed() {
	ctx, cancel := o.briefly()
	defer cancel()
	d, err := o.a.Next(ctx, 1+o.random.IntN(64<<10))
	if errors.Is(err, errNothing) {
		return
	}
	if err != nil {
		o.t.Fatal(err)
	}
	if d.Released != "" {
		p := o.all[d.Released]
		if !p.due {
			o.t.Fatalf("%s: left the feed without being in it", d.Released)
		}
		p.due = false
		return
	}
	p := o.all[d.Process.ID()]
	if p.stream != nil || p.lost || p.due {
		o.t.Fatalf("%s: in the feed although a stream owns it, or before the feed reported its release", d.Process.ID())
	}
	o.check(p, d.Batch)
}

func (o *owners) readStream(p *streamOwned) {
	ctx, cancel := o.briefly()
	defer cancel()
	batch, err := p.stream.Next(ctx, 1+o.random.IntN(64<<10))
	switch {
	case errors.Is(err, errNothing), errors.Is(err, io.EOF) && p.at == p.closed:
	case err != nil:
		o.t.Fatal(err)
	default:
		o.check(p, batch)
	}
}

func (o *owners) attach() {
	req := session.AttachRequest{SessionID: o.session.ID(), AfterSeq: map[string]uint64{}}
	for id, p := range o.all {
		inFeed := p.stream == nil && !p.lost
		if p.due = !inFeed; inFeed {
			p.at = p.acked
		}
		if o.random.IntN(2) == 0 {
			seq := o.between(p)
			req.AfterSeq[id] = seq
			if inFeed {
				p.at, p.acked = seq, seq
			}
		}
	}
	a, err := o.f.registry.Attach(o.f.ctx, "tester", req)
	if err != nil {
		o.t.Fatal(err)
	}
	o.a = a
}

func (o *owners) detach() {
	o.a.Lost()
	o.old, o.a = append(o.old, o.a), nil
	for _, p := range o.all {
		p.due = false
	}
}

func (o *owners) own(p *streamOwned) {
	seq := o.between(p)
	stream, err := p.process.Own(o.f.ctx, seq, within(time.Hour))
	if err != nil {
		o.t.Fatal(err)
	}
	if taken := p.closed != 0 && p.acked == p.closed; o.a != nil && p.stream == nil && !p.lost && !taken {
		p.due = true
	}
	p.stream, p.lost, p.at, p.acked = stream, false, seq, seq
}

func (o *owners) disown(p *streamOwned) {
	if p.stream == nil {
		return
	}
	if o.random.IntN(3) == 0 {
		p.stream.Lost()
		p.lost = true
	} else {
		p.stream.Detach()
		p.at = p.acked
	}
	p.stream = nil
}

func (o *owners) acknowledge(p *streamOwned) {
	seq := p.acked + o.random.Uint64N(max(p.at, p.acked)-p.acked+1)
	var err error
	switch {
	case p.stream != nil:
		err = p.stream.Acknowledge(seq)
	case o.a != nil && !p.lost:
		err = o.a.Acknowledge(p.process.ID(), seq)
	default:
		return
	}
	if err != nil {
		o.t.Fatal(err)
	}
	p.acked = max(p.acked, seq)
}

// late acknowledges on an attachment that has ended, which must have no effect.
func (o *owners) late(p *streamOwned) {
	if len(o.old) > 0 {
		if err := o.old[o.random.IntN(len(o.old))].Acknowledge(p.process.ID(), p.seen+uint64(o.random.IntN(2))); err != nil {
			o.t.Fatal(err)
		}
	}
}

func (o *owners) step() {
	switch p, n := o.pick(), o.random.IntN(20); {
	case n < 8 && o.a != nil:
		o.readFeed()
	case n < 12 && p.stream != nil:
		o.readStream(p)
	case n < 15:
		o.acknowledge(p)
	case n == 15:
		o.late(p)
	case n == 16:
		o.own(p)
	case n == 17:
		o.disown(p)
	case n == 18 && o.a != nil:
		o.detach()
	case o.a == nil:
		o.attach()
	}
}

// finish receives everything with an attachment.
func (o *owners) finish() {
	for _, p := range o.all {
		if p.lost {
			o.own(p)
		}
		if p.stream != nil {
			p.stream.Detach()
			p.stream, p.at = nil, p.acked
		}
	}
	if o.a != nil {
		o.detach()
	}
	o.attach()
	for id, p := range o.all {
		for p.at == 0 || p.at != p.closed {
			if o.f.ctx.Err() != nil {
				o.t.Fatalf("%s does not end after %d, acknowledged is %d: %+v", id, p.at, p.acked, p.process.Log().Stats())
			}
			o.readFeed()
			for _, q := range o.all {
				q.acked = max(q.at, q.acked)
				if err := o.a.Acknowledge(q.process.ID(), q.acked); err != nil {
					o.t.Fatal(err)
				}
			}
		}
		if got := p.ends[p.closed]; got != uint64(len(o.want)) {
			o.t.Errorf("%s: received %d bytes", id, got)
		}
	}
	o.a.Lost()
}

// Processes move between attachments and streams at random.
func TestOwners_RandomOrder_LoseAndRepeatNothing(t *testing.T) {
	const size, steps = 512 << 10, 1500
	want, err := io.ReadAll(testproc.StdoutPattern.Reader(size))
	if err != nil {
		t.Fatal(err)
	}
	seeds := uint64(2)
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			f := newFixture(t, session.Config{ClosedRetention: time.Hour})
			a, err := f.registry.Attach(f.ctx, "tester", session.AttachRequest{Grace: within(time.Hour)})
			if err != nil {
				t.Fatal(err)
			}
			o := &owners{t: t, f: f, random: rand.New(rand.NewPCG(seed, 7)), session: a.Session(), want: want, a: a, all: make(map[string]*streamOwned)}
			for i := range 4 {
				id := fmt.Sprint(i)
				p, _, err := a.Session().Start(f.ctx, id, session.Digest{}, small(flood(size)), session.StartOptions{})
				if err != nil {
					t.Fatal(err)
				}
				o.all[id] = &streamOwned{process: p, ends: map[uint64]uint64{0: 0}}
			}
			for range steps {
				o.step()
			}
			o.finish()
		})
	}
}
