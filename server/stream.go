package server

import (
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/codes"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// receiver is the receiving side of a stream.
type receiver[M any] interface{ Recv() (*M, error) }

// receiveFirst receives the first message of a stream. missing is what the error says
// if there is none.
func receiveFirst[M any](stream receiver[M], missing string) (*M, error) {
	m, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil, unexpectedMessage(missing)
	}
	return m, err
}

// receiveRest handles messages until handle returns an error or the stream ends, which
// is io.EOF. It blocks on nothing but the stream and handle.
func receiveRest[M any](stream receiver[M], handle func(*M) error) error {
	for {
		m, err := stream.Recv()
		if err == nil {
			err = handle(m)
		}
		if err != nil {
			return err
		}
	}
}

func unexpectedMessage(text string) error {
	return newStatus(codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE, text)
}

// maxPosted bounds the answers queued for a client that does not read. Beyond that
// the oldest are dropped.
const maxPosted = 64

// outbox sends on a stream, one message at a time. Senders of events wait for the
// client; answers are posted and never wait. A goroutine sends posted messages, and
// exists only while there are any. All methods may be called concurrently.
type outbox[M any] struct {
	stream interface{ Send(*M) error }

	sending sync.Mutex // held while a message is sent
	mu      sync.Mutex
	posted  []*M           // guarded by mu
	latest  *M             // guarded by mu; a message of which only the last matters
	open    bool           // guarded by mu; between startPosting and stopPosting
	posting bool           // guarded by mu; the goroutine runs
	done    sync.WaitGroup // the goroutine
}

func newOutbox[M any](stream interface{ Send(*M) error }) *outbox[M] {
	return &outbox[M]{stream: stream}
}

// send sends a message and blocks until the stream has taken it.
func (o *outbox[M]) send(m *M) error {
	o.sending.Lock()
	defer o.sending.Unlock()
	return o.stream.Send(m)
}

// post queues an answer. It never blocks.
func (o *outbox[M]) post(m *M) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.posted) == maxPosted {
		o.posted = append(o.posted[:0], o.posted[1:]...)
	}
	o.posted = append(o.posted, m)
	o.flushLocked()
}

// postLatest queues a message and replaces the one queued by it before.
func (o *outbox[M]) postLatest(m *M) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.latest = m
	o.flushLocked()
}

// startPosting lets posted messages be sent.
func (o *outbox[M]) startPosting() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = true
	o.flushLocked()
}

// flushLocked starts the goroutine if it is needed.
func (o *outbox[M]) flushLocked() {
	if !o.open || o.posting || len(o.posted) == 0 && o.latest == nil {
		return
	}
	o.posting = true
	o.done.Go(func() {
		for list := o.take(); len(list) > 0; list = o.take() {
			for _, m := range list {
				if o.send(m) != nil {
					return // the stream has ended
				}
			}
		}
	})
}

// take takes all posted messages; none ends the goroutine.
func (o *outbox[M]) take() []*M {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.posted
	if o.latest != nil {
		list = append(list, o.latest)
	}
	o.posted, o.latest = nil, nil
	o.posting = len(list) > 0
	return list
}

// stopPosting waits until posted messages are sent or dropped. Later ones are not
// sent.
func (o *outbox[M]) stopPosting() {
	o.mu.Lock()
	o.open = false
	o.mu.Unlock()
	o.done.Wait()
}
