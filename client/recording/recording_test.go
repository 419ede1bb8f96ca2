package recording_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/execwire/execwire/client"
	"github.com/execwire/execwire/client/recording"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/asciicast"
)

// fake is a server with one process.
type fake struct {
	execwirev1.UnimplementedProcessServiceServer
	process *execwirev1.Process
	screen  *execwirev1.GetScreenResponse // nil: the call fails
	watch   func(send func(...*execwirev1.ProcessEvent)) error
}

func (f *fake) GetProcess(context.Context, *execwirev1.GetProcessRequest) (*execwirev1.GetProcessResponse, error) {
	return &execwirev1.GetProcessResponse{Process: f.process}, nil
}

func (f *fake) GetScreen(context.Context, *execwirev1.GetScreenRequest) (*execwirev1.GetScreenResponse, error) {
	if f.screen == nil {
		return nil, status.Error(codes.PermissionDenied, "no")
	}
	return f.screen, nil
}

func (f *fake) WatchProcess(_ *execwirev1.WatchProcessRequest, stream grpc.ServerStreamingServer[execwirev1.WatchProcessResponse]) error {
	return f.watch(func(events ...*execwirev1.ProcessEvent) {
		_ = stream.Send(&execwirev1.WatchProcessResponse{Events: events})
	})
}

// sends is a watch that sends events at once.
func sends(events ...*execwirev1.ProcessEvent) func(func(...*execwirev1.ProcessEvent)) error {
	return func(send func(...*execwirev1.ProcessEvent)) error { send(events...); return nil }
}

// write records the process of a fake.
func write(ctx context.Context, t *testing.T, f *fake, after uint64, to io.Writer, options recording.Options) (client.Exit, error) {
	t.Helper()
	listener, server := bufconn.Listen(1<<20), grpc.NewServer()
	execwirev1.RegisterProcessServiceServer(server, f)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	conn, err := grpc.NewClient("passthrough:///fake", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(0),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = conn.Close()
		server.Stop()
		serving.Wait()
	}()
	return recording.Write(ctx, client.New(conn), client.ProcessRef{ProcessID: "p", AfterSeq: after}, to, options)
}

// read returns the header and the events of a recording.
func read(t *testing.T, file string) (asciicast.Header, []string) {
	t.Helper()
	r, err := asciicast.NewReader(strings.NewReader(file))
	if err != nil {
		t.Fatalf("%v: %s", err, file)
	}
	var events []string
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return r.Header(), events
		}
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, fmt.Sprint(e.At.Seconds(), " ", e.Code, " ", e.Data))
	}
}

// serverTime is the time of the server some seconds after it was 2001.
func serverTime(seconds int) *timestamppb.Timestamp {
	return timestamppb.New(time.Date(2001, 1, 1, 0, 0, seconds, 0, time.UTC))
}

func output(seq, offset uint64, at int, data string) *execwirev1.ProcessEvent {
	return &execwirev1.ProcessEvent{Seq: seq, Event: &execwirev1.ProcessEvent_Output{Output: &execwirev1.ProcessOutput{
		Stream: execwirev1.OutputStream_OUTPUT_STREAM_TERMINAL, Offset: offset, Data: []byte(data), ReadTime: serverTime(at)}}}
}

func resized(at int, columns, rows uint32) *execwirev1.ProcessEvent {
	return &execwirev1.ProcessEvent{Event: &execwirev1.ProcessEvent_Resized{Resized: &execwirev1.TerminalResized{
		Columns: columns, Rows: rows, Time: serverTime(at)}}}
}

func gap(next, dropped uint64) *execwirev1.ProcessEvent {
	return &execwirev1.ProcessEvent{Event: &execwirev1.ProcessEvent_Gap{Gap: &execwirev1.OutputGap{FirstAvailableSeq: next, DroppedBytes: dropped}}}
}

func exitRecord(at int, code int32) *execwirev1.ExitRecord {
	return &execwirev1.ExitRecord{Status: &execwirev1.ExitRecord_ExitCode{ExitCode: code}, Cause: execwirev1.ExitCause_EXIT_CAUSE_EXITED, ExitTime: serverTime(at)}
}

func exited(seq uint64, exit *execwirev1.ExitRecord) *execwirev1.ProcessEvent {
	return &execwirev1.ProcessEvent{Seq: seq, Event: &execwirev1.ProcessEvent_Exited{Exited: &execwirev1.ProcessExited{Exit: exit}}}
}

func closed(seq uint64) *execwirev1.ProcessEvent {
	return &execwirev1.ProcessEvent{Seq: seq, Event: &execwirev1.ProcessEvent_Closed{Closed: &execwirev1.ProcessClosed{}}}
}

func TestWrite_EndsAsTheProcess(t *testing.T) {
	lost := &execwirev1.ExitRecord{Cause: execwirev1.ExitCause_EXIT_CAUSE_SERVER_RESTARTED, ExitTime: serverTime(9)}
	killed := &execwirev1.ExitRecord{Status: &execwirev1.ExitRecord_Signal{Signal: 9}, Cause: execwirev1.ExitCause_EXIT_CAUSE_TERMINATED, ExitTime: serverTime(9)}
	isClosed := execwirev1.ProcessState_PROCESS_STATE_CLOSED
	for name, test := range map[string]struct {
		process *execwirev1.Process
		after   uint64
		options recording.Options
		events  []*execwirev1.ProcessEvent
		year    int // of the header
		want    []string
	}{
		"all that is retained": {
			process: &execwirev1.Process{State: isClosed, LastSeq: 3, Exit: exitRecord(9, 3)}, options: recording.Options{Retained: true},
			events: []*execwirev1.ProcessEvent{output(1, 0, 7, "a"), exited(2, exitRecord(9, 3)), closed(3)},
			year:   2001, want: []string{"0 o a", "2 m exit status 3"},
		},
		"by a signal": {
			process: &execwirev1.Process{State: isClosed, LastSeq: 2, Exit: killed},
			events:  []*execwirev1.ProcessEvent{exited(1, killed), closed(2)},
			year:    2001, want: []string{"0 m exit status 137"},
		},
		"it is not known how": {
			process: &execwirev1.Process{State: isClosed, LastSeq: 3, Exit: lost},
			events:  []*execwirev1.ProcessEvent{output(1, 0, 7, "a"), exited(2, lost), closed(3)},
			year:    2001, want: []string{"0 o a", "2 m the exit status is not known"},
		},
		"before the recording began": {
			process: &execwirev1.Process{State: execwirev1.ProcessState_PROCESS_STATE_EXITED, LastSeq: 2, Exit: exitRecord(9, 3)}, after: 2,
			events: []*execwirev1.ProcessEvent{closed(3)},
			year:   2000, want: []string{"0 m exit status 3"},
		},
		"closed before the recording began": {
			process: &execwirev1.Process{State: isClosed, LastSeq: 3, Exit: exitRecord(9, 3)}, options: recording.Options{Live: true},
			year: 2000, want: []string{"0 m exit status 3"},
		},
		"after what is retained": {
			process: &execwirev1.Process{State: execwirev1.ProcessState_PROCESS_STATE_RUNNING, LastSeq: 2}, options: recording.Options{Retained: true},
			events: []*execwirev1.ProcessEvent{output(1, 0, 7, "a"), output(2, 1, 8, "b"), output(3, 2, 9, "c")},
			year:   2001, want: []string{"0 o a", "1 o b"},
		},
		"nothing is retained": {
			process: &execwirev1.Process{State: execwirev1.ProcessState_PROCESS_STATE_RUNNING}, options: recording.Options{Retained: true},
			year: 2000,
		},
		"with output that is missing": {
			process: &execwirev1.Process{State: isClosed, LastSeq: 6, Exit: exitRecord(9, 3)}, options: recording.Options{Retained: true},
			events: []*execwirev1.ProcessEvent{gap(4, 10), exited(4, exitRecord(9, 3)), gap(6, 20), closed(6)},
			year:   2001, want: []string{"0 m 10 bytes of output are missing", "0 m 20 bytes of output are missing", "0 m exit status 3"},
		},
		"all that was retained is missing": {
			process: &execwirev1.Process{State: execwirev1.ProcessState_PROCESS_STATE_RUNNING, LastSeq: 2}, options: recording.Options{Retained: true},
			events: []*execwirev1.ProcessEvent{gap(4, 10), output(4, 10, 9, "c")},
			year:   2000, want: []string{"0 m 10 bytes of output are missing"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // where it is the year 2000
				var file bytes.Buffer
				if _, err := write(t.Context(), t, &fake{process: test.process, watch: sends(test.events...)}, test.after, &file, test.options); err != nil {
					t.Error(err)
				}
				header, events := read(t, file.String())
				if header.Began.UTC().Year() != test.year || !slices.Equal(events, test.want) {
					t.Errorf("began %v: %q, want %q", header.Began, events, test.want)
				}
			})
		})
	}
}

// A live recording has its header at once, and times since it began, whatever the clock of the server.
func TestWrite_Live_CountsFromItsBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var file bytes.Buffer
		f := &fake{
			process: &execwirev1.Process{HasTerminal: true, LastSeq: 5},
			screen:  &execwirev1.GetScreenResponse{Screen: &execwirev1.Screen{Seq: 5, Size: &execwirev1.TerminalSize{Columns: 80, Rows: 24}}, Repaint: []byte("screen")},
			watch: func(send func(...*execwirev1.ProcessEvent)) error {
				send(resized(100, 90, 30)) // long ago
				time.Sleep(3 * time.Second)
				send(output(6, 0, 1003, "a"))
				time.Sleep(2 * time.Second)
				send(output(7, 1, 1005, "b"), resized(1006, 91, 30), exited(8, exitRecord(1007, 0)), closed(9))
				return nil
			},
		}
		if _, err := write(t.Context(), t, f, 0, &file, recording.Options{Live: true}); err != nil {
			t.Error(err)
		}
		want := []string{"0 o screen", "0 r 90x30", "3 o a", "5 o b", "6 r 91x30", "7 m exit status 0"}
		if header, events := read(t, file.String()); header.Began.UTC().Year() != 2000 || !slices.Equal(events, want) {
			t.Errorf("began %v: %q, want %q", header.Began, events, want)
		}
	})
}

// What was written when a recording fails is one.
func TestWrite_Fails_LeavesARecording(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var file bytes.Buffer
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		var begun string
		quiet := &fake{process: &execwirev1.Process{}, watch: func(func(...*execwirev1.ProcessEvent)) error {
			begun = file.String() // before any event
			cancel(cause)
			<-ctx.Done()
			return nil
		}}
		if _, err := write(ctx, t, quiet, 0, &file, recording.Options{Live: true}); !errors.Is(err, cause) {
			t.Error(err)
		}
		read(t, begun)
		read(t, file.String())
		file.Reset()
		refused := &fake{process: &execwirev1.Process{HasTerminal: true}}
		if _, err := write(t.Context(), t, refused, 0, &file, recording.Options{Live: true}); err == nil {
			t.Error("there is no screen, and no error")
		}
		read(t, file.String())
	})
}

// fullWriter fails from a line on.
type fullWriter struct{ lines, after int }

var errFull = errors.New("no space left")

func (f *fullWriter) Write(p []byte) (int, error) {
	if f.lines >= 0 {
		f.lines--
	}
	if f.lines < 0 {
		f.after++
		return len(p) / 2, errFull
	}
	return len(p), nil
}

// Nothing is written after an error of the writer, which is returned, even if ctx has ended, too.
func TestWrite_WriterFails_IsNotUsedAgain(t *testing.T) {
	for lines := range 4 {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			f := &fake{process: &execwirev1.Process{LastSeq: 9}, watch: sends(gap(2, 10), output(2, 10, 7, "a\xe2"), output(3, 12, 8, "b"), exited(4, exitRecord(9, 0)), closed(5))}
			to := &fullWriter{lines: lines}
			_, err := write(ctx, t, f, 0, writerFunc(func(p []byte) (int, error) {
				n, err := to.Write(p)
				if err != nil {
					cancel()
				}
				return n, err
			}), recording.Options{})
			if !errors.Is(err, errFull) || errors.Is(err, context.Canceled) || to.after != 1 {
				t.Errorf("after %d lines: %v, and %d more writes", lines, err, to.after-1)
			}
			cancel()
		})
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
