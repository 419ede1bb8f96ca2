package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// model is a process that writes a pattern, reads a pattern, and ends when it has read
// everything, over streams that break at random.
type model struct {
	fake   *fakeServer
	window uint64 // of output

	mu     sync.Mutex
	random *rand.Rand // guarded by mu
	cuts   int        // left; guarded by mu
	start  *execwirev1.RunStart
	log    []*execwirev1.ProcessEvent // without the last two events until stdin has ended
	sink   stdinSink
	totals [2]uint64
	most   uint64 // the last seq sent on any stream
}

func (m *model) roll(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.random.IntN(n)
}

// cut sometimes breaks the stream, so that sent data arrives, or the connection, so
// that it does not.
func (m *model) cut() error {
	m.mu.Lock()
	hit := m.cuts > 0 && m.random.IntN(8) == 0
	hard := hit && m.random.IntN(2) == 0
	if hit {
		m.cuts--
	}
	m.mu.Unlock()
	if hard {
		m.fake.cutConnections()
	}
	if hit {
		return errCut
	}
	return nil
}

func (m *model) write(stream execwirev1.OutputStream, data []byte) {
	i := stream - 1
	m.log = append(m.log, output(uint64(len(m.log)+1), stream, m.totals[i], string(data)))
	m.totals[i] += uint64(len(data))
}

// serve handles every stream.
func (m *model) serve(stream serverStream) error {
	request, err := stream.Recv()
	if err != nil {
		return err
	}
	if err := m.cut(); err != nil {
		return err // the start was received but not answered
	}
	m.mu.Lock()
	after := request.GetResume().GetAfterSeq()
	if start := request.GetStart(); start != nil {
		start.Process.FirstSentAgo = nil // differs in each retry
		if m.start != nil && !proto.Equal(m.start, start) {
			m.sink.t.Errorf("started again differently: %v", start)
		}
		m.start = start
	}
	offset := uint64(m.sink.data.Len())
	m.mu.Unlock()
	answer := started(offset)
	answer.GetStarted().OutputWindowBytes = m.window
	if err := stream.Send(answer); err != nil {
		return err
	}
	return m.follow(stream, after)
}

// follow sends events and receives input until the process has closed or the stream is
// cut.
func (m *model) follow(stream serverStream, after uint64) error {
	requests := make(chan *execwirev1.RunProcessRequest)
	ctx := stream.Context()
	over := make(chan struct{})
	defer close(over)
	// Recv ends when the handler returns, so nothing waits for this goroutine.
	go func() {
		for {
			request, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- request:
			case <-over:
				return
			}
		}
	}()
	owner := &modelOwner{model: m, stream: stream, sent: after, acknowledged: after}
	for {
		if done, err := owner.push(); done || err != nil {
			return err
		}
		select {
		case request := <-requests:
			if err := owner.take(request); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// modelOwner is one stream of a model.
type modelOwner struct {
	model              *model
	stream             serverStream
	sent, acknowledged uint64
}

// push sends what the window allows, in pieces of random size.
func (o *modelOwner) push() (done bool, err error) {
	for {
		batch, closed := o.batch()
		if len(batch) == 0 {
			return false, nil
		}
		if err := o.model.cut(); err != nil {
			return false, err
		}
		if err := o.stream.Send(events(batch...)); err != nil {
			return false, err
		}
		if closed {
			return true, nil
		}
	}
}

func (o *modelOwner) batch() (batch []*execwirev1.ProcessEvent, closed bool) {
	m := o.model
	n := 1 + m.roll(4)
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.log
	if m.sink.eof {
		last := uint64(len(m.log))
		list = append(list[:last:last], exited(last+1, 0), closedEvent(last+2, m.totals))
	}
	for ; n > 0 && o.sent < uint64(len(list)) && o.unacknowledged() < m.window; n-- {
		batch = append(batch, list[o.sent])
		o.sent++
	}
	m.most = max(m.most, o.sent)
	return batch, m.sink.eof && o.sent == uint64(len(list))
}

func closedEvent(seq uint64, totals [2]uint64) *execwirev1.ProcessEvent {
	return closed(seq, totals[0], totals[1])
}

// unacknowledged returns the bytes of unacknowledged output. The caller holds the
// model's mu.
func (o *modelOwner) unacknowledged() (n uint64) {
	end := min(o.sent, uint64(len(o.model.log)))
	for _, e := range o.model.log[min(o.acknowledged, end):end] {
		n += uint64(len(e.GetOutput().GetData()))
	}
	return n
}

func (o *modelOwner) take(request *execwirev1.RunProcessRequest) error {
	m := o.model
	if err := m.cut(); err != nil {
		return err
	}
	if ack := request.GetAcknowledge(); ack != nil {
		m.mu.Lock()
		if ack.GetSeq() > m.most {
			m.sink.t.Errorf("acknowledged %d when %d were sent", ack.GetSeq(), m.most)
		}
		m.mu.Unlock()
		o.acknowledged = max(o.acknowledged, ack.GetSeq())
		return nil
	}
	stdin := request.GetStdin()
	if stdin == nil {
		return nil
	}
	m.mu.Lock()
	m.sink.take(stdin)
	have := uint64(m.sink.data.Len())
	m.mu.Unlock()
	if err := m.cut(); err != nil {
		return err // accepted without an answer
	}
	return o.stream.Send(accepted(have))
}

// plan is one random run.
type plan struct {
	seed          uint64
	window        uint64
	cuts          int
	chunks, input int
}

// Both directions arrive exactly once and in order, wherever streams and connections
// break.
func TestRun_RandomCuts_DeliverExactlyOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := plan{
			seed:   rapid.Uint64().Draw(rt, "seed"),
			window: rapid.Uint64Range(1, 100_000).Draw(rt, "window"),
			cuts:   rapid.IntRange(0, 30).Draw(rt, "cuts"),
			chunks: rapid.IntRange(0, 40).Draw(rt, "chunks"),
			input:  rapid.IntRange(0, 300_000).Draw(rt, "input"),
		}
		var err error
		synctest.Test(t, func(t *testing.T) { err = p.run(t) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

func (p plan) run(t *testing.T) error {
	fake, c := newFake(t)
	m := &model{
		fake:   fake,
		window: p.window,
		random: rand.New(rand.NewPCG(p.seed, 0)),
		cuts:   p.cuts,
		sink:   stdinSink{t: t},
	}
	fake.beyond = m.serve
	var want [2][]byte
	for range p.chunks {
		stream := execwirev1.OutputStream(1 + m.roll(2))
		data := pattern(1 + m.roll(30_000))
		want[stream-1] = append(want[stream-1], data...)
		m.write(stream, data)
	}
	input := pattern(p.input)
	var out, errOut bytes.Buffer
	// The virtual clock of a run that hangs would advance forever.
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	exit, err := c.Run(ctx, RunOptions{
		Process: direct("x"),
		Stdin:   &randomReader{data: input, random: rand.New(rand.NewPCG(p.seed, 1))},
		Stdout:  &out,
		Stderr:  &errOut,
	})
	switch {
	case err != nil:
		return fmt.Errorf("failed after %d streams: %w", fake.callCount(), err)
	case !bytes.Equal(out.Bytes(), want[0]) || !bytes.Equal(errOut.Bytes(), want[1]):
		return fmt.Errorf("output differs: %d and %d bytes, want %d and %d",
			out.Len(), errOut.Len(), len(want[0]), len(want[1]))
	case !bytes.Equal(m.sink.data.Bytes(), input):
		return fmt.Errorf("stdin differs: %d bytes, want %d", m.sink.data.Len(), len(input))
	case exit.DroppedBytes != 0:
		return fmt.Errorf("dropped %d bytes", exit.DroppedBytes)
	}
	return nil
}

// randomReader reads pieces of random size.
type randomReader struct {
	data   []byte
	random *rand.Rand
}

func (r *randomReader) Read(p []byte) (int, error) {
	if len(r.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:1+r.random.IntN(len(p))], r.data)
	r.data = r.data[n:]
	return n, nil
}
