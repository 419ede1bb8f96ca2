package server

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/eventlog"
	"github.com/execwire/execwire/internal/notify"
	"github.com/execwire/execwire/internal/process"
	"github.com/execwire/execwire/internal/screen"
	"github.com/execwire/execwire/internal/session"
)

// Sizes of messages with output.
const (
	// streamBytes is the output in one message of a stream. A message just
	// above 32 KiB costs gRPC a 1 MiB buffer, one just below costs half.
	streamBytes = eventlog.MaxChunkBytes
	// localStreamBytes is the size within this program, where nothing is encoded:
	// larger messages wake fewer goroutines.
	localStreamBytes = 2 * eventlog.MaxChunkBytes
	// readBytes is the most output in one answer of ReadOutput.
	readBytes = 1 << 20
)

// isLocal reports whether the caller is in this program and receives messages by
// reference.
func isLocal(ctx context.Context) bool {
	_, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ ReuseAfter() int })
	return ok
}

// messageBytes returns how much output one message of a call's stream has.
func messageBytes(ctx context.Context) int {
	if isLocal(ctx) {
		return localStreamBytes
	}
	return streamBytes
}

// cursor is implemented by observers and owners.
type cursor interface {
	Next(ctx context.Context, maxBytes int) (eventlog.Batch, error)
	Borrow()
}

// forward sends the events of a cursor until the log ends, which is no error. send must
// be done with their data when it returns, unless the caller is local.
func forward(ctx context.Context, p *session.Process, c cursor, send func([]*execwirev1.ProcessEvent) error) error {
	most := messageBytes(ctx)
	if !isLocal(ctx) {
		c.Borrow() // sending encodes
	}
	for {
		batch, err := c.Next(ctx, most)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := send(toEvents(p, batch)); err != nil {
			return err
		}
	}
}

// WatchProcess implements the RPC.
func (s *processService) WatchProcess(req *execwirev1.WatchProcessRequest, stream grpc.ServerStreamingServer[execwirev1.WatchProcessResponse]) error {
	p, err := s.server.find(stream.Context(), req.GetSessionId(), req.GetProcessId())
	if err != nil {
		return err
	}
	reader, err := p.Log().NewReader(req.GetAfterSeq())
	if err != nil {
		return err
	}
	defer reader.Close()
	sizes := process.NewSizes(p, req.GetAfterSeq())
	err = forward(stream.Context(), p, reader, func(events []*execwirev1.ProcessEvent) error {
		if req.GetResizes() {
			events = withSizes(sizes, events)
		}
		return stream.Send(&execwirev1.WatchProcessResponse{Events: events})
	})
	if err == nil {
		markSeen(stream.Context(), p)
	}
	return err
}

// withSizes returns the events with the sizes of a terminal in front of those that followed them.
func withSizes(sizes *process.Sizes, events []*execwirev1.ProcessEvent) []*execwirev1.ProcessEvent {
	resized := sizes.Until(lastSeq(events))
	if len(resized) == 0 {
		return events
	}
	all := make([]*execwirev1.ProcessEvent, 0, len(events)+len(resized))
	for _, e := range events {
		for ; len(resized) > 0 && resized[0].Seq < e.GetSeq(); resized = resized[1:] {
			size := resized[0]
			all = append(all, &execwirev1.ProcessEvent{Event: &execwirev1.ProcessEvent_Resized{Resized: &execwirev1.TerminalResized{
				Rows: uint32(size.Size.Rows), Columns: uint32(size.Size.Cols), Time: timestamppb.New(size.At)}}})
		}
		all = append(all, e)
	}
	return all
}

// lastSeq returns the seq of the last event, or 0 if there is only a gap.
func lastSeq(events []*execwirev1.ProcessEvent) uint64 {
	for _, e := range slices.Backward(events) {
		if seq := e.GetSeq(); seq != 0 {
			return seq
		}
	}
	return 0
}

// ReadOutput implements the RPC.
func (s *processService) ReadOutput(ctx context.Context, req *execwirev1.ReadOutputRequest) (*execwirev1.ReadOutputResponse, error) {
	p, err := s.server.find(ctx, req.GetSessionId(), req.GetProcessId())
	if err != nil {
		return nil, err
	}
	reader, err := p.Log().NewReader(req.GetAfterSeq())
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	budget := readBytes
	if req.MaxBytes != nil {
		budget = min(budget, int(req.GetMaxBytes()))
	}
	events, err := collect(ctx, p, reader, budget, s.server.capWait(req.GetWait().AsDuration()))
	if err != nil {
		return nil, err
	}
	stats := p.Log().Stats()
	resp := &execwirev1.ReadOutputResponse{
		Events:       events,
		NextAfterSeq: max(req.GetAfterSeq(), lastSeq(events)),
		LastSeq:      stats.LastSeq,
		Exit:         toExit(p),
		Closed:       stats.Closed,
	}
	if resp.Closed && resp.NextAfterSeq == resp.LastSeq {
		markSeen(ctx, p)
	}
	return resp, nil
}

// collect returns whole events of up to budget bytes, and waits for at least one
// event.
func collect(ctx context.Context, p *session.Process, reader *eventlog.Reader, budget int, wait time.Duration) ([]*execwirev1.ProcessEvent, error) {
	batch, ok, err := reader.TryNext(max(budget, 1))
	if err == nil && !ok && wait > 0 {
		batch, ok, err = nextWithin(ctx, reader, budget, wait)
	}
	var events []*execwirev1.ProcessEvent
	for ; err == nil && ok; batch, ok, err = reader.TryNext(max(budget, 1)) {
		fits := len(batch.Events)
		for i := range batch.Events {
			size := len(batch.Events[i].Data)
			if size > budget && len(events)+i > 0 {
				fits = i
				break
			}
			budget -= size
		}
		cut := fits < len(batch.Events)
		if cut && fits == 0 {
			break // a gap belongs to the event that follows it
		}
		batch.Events = batch.Events[:fits]
		events = append(events, toEvents(p, batch)...)
		if cut {
			break
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return events, err
}

// errWaitTimeout ends a wait for output; it is no error of the call.
var errWaitTimeout = errors.New("the wait is over")

func nextWithin(ctx context.Context, reader *eventlog.Reader, budget int, wait time.Duration) (eventlog.Batch, bool, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, wait, errWaitTimeout)
	defer cancel()
	batch, err := reader.Next(waiting, max(budget, 1))
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return eventlog.Batch{}, false, nil
	}
	return batch, err == nil, err
}

// SnapshotOutput implements the RPC.
func (s *processService) SnapshotOutput(ctx context.Context, req *execwirev1.SnapshotOutputRequest) (*execwirev1.SnapshotOutputResponse, error) {
	p, err := s.server.find(ctx, req.GetSessionId(), req.GetProcessId())
	if err != nil {
		return nil, err
	}
	// The process is described first: if it has closed, the streams are complete.
	resp := &execwirev1.SnapshotOutputResponse{Process: toProcess(p)}
	for _, stream := range streamsOf(p) {
		part := p.Log().Snapshot(stream)
		resp.Streams = append(resp.Streams, &execwirev1.StreamSnapshot{
			Stream:       outputStreams[stream],
			Head:         part.Head,
			Tail:         part.Tail,
			OmittedBytes: part.Omitted,
			TotalBytes:   part.Total,
		})
	}
	resp.LastSeq = p.Log().Stats().LastSeq
	return resp, nil
}

// GetScreen implements the RPC.
func (s *processService) GetScreen(ctx context.Context, req *execwirev1.GetScreenRequest) (*execwirev1.GetScreenResponse, error) {
	p, err := s.server.find(ctx, req.GetSessionId(), req.GetProcessId())
	if err != nil {
		return nil, err
	}
	resp := &execwirev1.GetScreenResponse{}
	err = p.Screen(func(shown *screen.Screen, seq uint64) {
		resp.Screen = toScreen(shown.Snapshot(), seq, req.GetStyles())
		if req.GetRepaint() {
			resp.Repaint = shown.Repaint()
		}
	})
	return resp, err
}

func toScreen(shown screen.Snapshot, seq uint64, styles bool) *execwirev1.Screen {
	m := &execwirev1.Screen{
		Seq: seq, Size: &execwirev1.TerminalSize{Rows: uint32(shown.Rows), Columns: uint32(shown.Columns)},
		Title: shown.Title, Alternate: shown.Alternate,
		Cursor: &execwirev1.ScreenCursor{Row: uint32(shown.Cursor.Row), Column: uint32(shown.Cursor.Column), Visible: shown.Cursor.Visible},
	}
	for row, line := range shown.Lines {
		one := &execwirev1.ScreenLine{Row: uint32(row), Text: line.Text}
		if styles {
			for _, run := range line.Runs {
				styled := &execwirev1.ScreenRun{Text: run.Text}
				if run.Style != (screen.Style{}) {
					styled.Sgr = run.Style.SGR()
				}
				one.Runs = append(one.Runs, styled)
			}
		}
		m.Lines = append(m.Lines, one)
	}
	return m
}

// screenInterval is the least time between two messages of a screen.
const screenInterval = 50 * time.Millisecond

// WatchScreen implements the RPC.
func (s *processService) WatchScreen(req *execwirev1.WatchScreenRequest, stream grpc.ServerStreamingServer[execwirev1.WatchScreenResponse]) error {
	ctx := stream.Context()
	p, err := s.server.find(ctx, req.GetSessionId(), req.GetProcessId())
	if err != nil {
		return err
	}
	reader, err := p.Log().NewReader(p.Log().Stats().LastSeq) // it counts as a reader
	if err != nil {
		return err
	}
	defer reader.Close()
	var before *execwirev1.Screen
	for {
		var now *execwirev1.Screen
		ended := false
		changed, err := p.WatchScreen(func(shown *screen.Screen, seq uint64) {
			ended = notify.IsClosed(p.Closed())
			now = toScreen(shown.Snapshot(), seq, req.GetStyles())
		})
		if err != nil {
			return err
		}
		if change := changedScreen(before, now); change != nil {
			if err := stream.Send(&execwirev1.WatchScreenResponse{Screen: change}); err != nil {
				return err
			}
		}
		if before = now; ended {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
		timer := time.NewTimer(screenInterval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// changedScreen returns the screen with the lines that are not as before; nil if it shows the same.
func changedScreen(before, now *execwirev1.Screen) *execwirev1.Screen {
	if !proto.Equal(before.GetSize(), now.Size) {
		return now
	}
	change := &execwirev1.Screen{Seq: now.Seq, Size: now.Size, Cursor: now.Cursor, Title: now.Title, Alternate: now.Alternate}
	for row, line := range now.Lines {
		if !proto.Equal(before.Lines[row], line) {
			change.Lines = append(change.Lines, line)
		}
	}
	if len(change.Lines) == 0 && proto.Equal(before.Cursor, now.Cursor) && before.Title == now.Title && before.Alternate == now.Alternate {
		return nil
	}
	return change
}
