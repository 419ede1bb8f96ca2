package execserver

import (
	"context"
	"io"
	"time"

	"google.golang.org/grpc"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// WatchProcess implements the RPC.
func (s *processService) WatchProcess(r *execwirev1.WatchProcessRequest, stream grpc.ServerStreamingServer[execwirev1.WatchProcessResponse]) error {
	ctx := stream.Context()
	l, err := s.conn.current(ctx)
	if err != nil {
		return err
	}
	p, err := s.named(r)
	if err != nil {
		return err
	}
	f := p.join(l, r.GetAfterSeq(), true, r.GetLossless())
	defer f.leave()
	if r.GetLossless() {
		if err := p.pace(f); err != nil {
			return err
		}
		defer p.disown(f)
	}
	for {
		events, err := f.next(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&execwirev1.WatchProcessResponse{Events: events}); err != nil {
			return err
		}
		if r.GetLossless() {
			p.mu.Lock()
			p.acknowledge(f.cursor)
			p.mu.Unlock()
		}
		if events[len(events)-1].GetClosed() != nil {
			return nil
		}
	}
}

// pace makes a feed that holds the process up, as an owner does, what an owner is
// here, if there is none.
func (p *process) pace(f *feed) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.owner != nil || p.waiting != nil {
		return failure(execwirev1.ErrorReason_ERROR_REASON_PROCESS_OWNED, "somebody owns process %s", p.id)
	}
	p.owner = f
	return nil
}

// maxReadBytes is the most output in one answer of ReadOutput.
const maxReadBytes = 1 << 20

// maxWait is how long a call waits for something to happen.
const maxWait = time.Minute

// waitOf is how long a call that says so waits.
func waitOf(asked time.Duration) time.Duration { return min(max(asked, 0), maxWait) }

// ReadOutput implements the RPC. It waits here, and not at the server, which may
// serve nothing else meanwhile.
func (s *processService) ReadOutput(ctx context.Context, r *execwirev1.ReadOutputRequest) (*execwirev1.ReadOutputResponse, error) {
	p, err := s.named(r)
	if err != nil {
		return nil, err
	}
	most := uint64(maxReadBytes)
	if r.MaxBytes != nil {
		most = min(most, uint64(r.GetMaxBytes()))
	}
	timer := time.NewTimer(waitOf(r.GetWait().AsDuration()))
	defer timer.Stop()
	for over := false; ; {
		l, err := s.conn.current(ctx)
		if err != nil {
			return nil, err
		}
		last, _, _, changed := p.state()
		read, err := p.read(ctx, l, r.GetAfterSeq(), most, false)
		switch {
		case err != nil:
			return nil, err
		case read.last < r.GetAfterSeq():
			return nil, seqNotReached(p.id, r.GetAfterSeq(), read.last)
		case len(read.events) > 0, read.closed, over, r.GetWait() == nil:
			return read.response(p, r.GetAfterSeq()), nil
		case last > r.GetAfterSeq():
			continue // said meanwhile
		}
		select {
		case <-changed:
		case <-timer.C:
			over = true
		case <-l.lost():
			return nil, l.status()
		case <-ctx.Done():
			return nil, contextStatus(ctx)
		}
	}
}

// response is a read as the contract has it.
func (r *reading) response(p *process, after uint64) *execwirev1.ReadOutputResponse {
	p.mu.Lock()
	offsets, last := p.offsetsAt(after), p.last
	p.mu.Unlock()
	f := &feed{process: p, link: &link{}, cursor: after, offsets: offsets}
	for i, event := range r.events {
		r.events[i] = f.placed(event)
	}
	return &execwirev1.ReadOutputResponse{
		Events: r.events, NextAfterSeq: r.position, LastSeq: max(last, r.position), Exit: r.exit, Closed: r.closed}
}
