package execserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/backoff"
)

// owner owns a process as package client does, and checks that it is told everything
// once and in order.
type owner struct {
	t     testing.TB
	conn  *Conn
	start *execwirev1.StartProcessRequest
	input []byte // what the process reads; nil: it gets none

	stdout io.Writer
	gaps   int
	last   uint64
	offset uint64 // of standard output
	exit   *execwirev1.ExitRecord
	closed bool
	tries  int
	pause  backoff.Backoff
}

// run follows the process to its end, over as many streams as it takes. It pauses
// after each, as package client does: calls fail at once from a failed attempt to
// reconnect until the next.
func (o *owner) run() error {
	ctx, cancel := context.WithTimeout(o.t.Context(), patience)
	defer cancel()
	o.pause.Min = time.Millisecond
	for !o.closed {
		o.tries++
		err := o.follow(ctx)
		switch {
		case o.closed:
		case context.Cause(o.conn.ctx) != nil:
			return context.Cause(o.conn.ctx)
		case ctx.Err() != nil:
			return fmt.Errorf("seq %d is not passed in %v with %d streams: %w", o.last, patience, o.tries, err)
		case err != nil && status.Code(err) != codes.Unavailable:
			return err
		}
		o.pause.Wait(ctx, 0)
	}
	return nil
}

func (o *owner) follow(ctx context.Context) error {
	stream, err := execwirev1.NewProcessServiceClient(o.conn).RunProcess(ctx)
	if err != nil {
		return err
	}
	opening := &execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: &execwirev1.RunStart{Process: o.start}}}
	if o.last > 0 {
		opening.Message = &execwirev1.RunProcessRequest_Resume{Resume: &execwirev1.RunResume{ProcessId: o.start.GetProcessId(), AfterSeq: o.last}}
	}
	_ = stream.Send(opening) // Recv says why it failed
	window := uint64(0)
	for {
		m, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch m := m.GetMessage().(type) {
		case *execwirev1.RunProcessResponse_Started:
			o.pause.Reset()
			window = m.Started.GetStdinWindowBytes()
			o.feed(stream, m.Started.GetStdinOffset(), window)
		case *execwirev1.RunProcessResponse_StdinAccepted:
			o.feed(stream, m.StdinAccepted.GetOffset(), window)
		case *execwirev1.RunProcessResponse_Events:
			for _, event := range m.Events.GetEvents() {
				if err := o.take(event); err != nil {
					return err
				}
			}
			_ = stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Acknowledge{
				Acknowledge: &execwirev1.RunAcknowledge{Seq: o.last}}})
		}
	}
}

// feed sends what may be sent of the input, in pieces that differ each time.
func (o *owner) feed(stream execwirev1.ProcessService_RunProcessClient, from, window uint64) {
	if o.input == nil || from > uint64(len(o.input)) {
		return
	}
	end := min(from+window, uint64(len(o.input)))
	for at := from; at <= end; {
		n := min(uint64(10_000+o.tries*777), end-at)
		isEnd := at+n == uint64(len(o.input))
		_ = stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Stdin{
			Stdin: &execwirev1.RunStdin{Offset: at, Data: o.input[at : at+n], EndOfFile: isEnd}}})
		if at += n; n == 0 || isEnd {
			return
		}
	}
}

func (o *owner) take(event *execwirev1.ProcessEvent) error {
	if gap := event.GetGap(); gap != nil {
		o.gaps++
		o.last = gap.GetFirstAvailableSeq() - 1
		return nil
	}
	if event.GetSeq() != o.last+1 {
		return fmt.Errorf("seq %d follows %d", event.GetSeq(), o.last)
	}
	o.last = event.GetSeq()
	switch e := event.GetEvent().(type) {
	case *execwirev1.ProcessEvent_Output:
		if o.gaps == 0 && e.Output.GetStream() == execwirev1.OutputStream_OUTPUT_STREAM_STDOUT {
			if e.Output.GetOffset() != o.offset {
				return fmt.Errorf("output goes on at %d instead of %d", e.Output.GetOffset(), o.offset)
			}
			o.offset += uint64(len(e.Output.GetData()))
		}
		_, err := o.stdout.Write(e.Output.GetData())
		return err
	case *execwirev1.ProcessEvent_Exited:
		o.exit = e.Exited.GetExit()
	case *execwirev1.ProcessEvent_Closed:
		o.closed = true
	}
	return nil
}

// lines is 16 bytes again and again, which it checks.
type lines struct {
	t testing.TB
	n int
}

const line = "0123456789abcde\n"

func (l *lines) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		at := l.n % len(line)
		want := line[at:min(len(line), at+len(rest))]
		if !bytes.HasPrefix(rest, []byte(want)) {
			return 0, fmt.Errorf("after %d bytes comes %.20q", l.n, rest)
		}
		rest = rest[len(want):]
		l.n += len(want)
	}
	return len(p), nil
}

// flood is a process that says so many bytes of lines.
func flood(id string, bytes int) *execwirev1.StartProcessRequest {
	return script(id, fmt.Sprintf("yes 0123456789abcde | head -c %d", bytes))
}
