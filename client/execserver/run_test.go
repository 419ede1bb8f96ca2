package execserver

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
)

// size is how much a test that cuts connections passes: all of it where there is time.
func size(t testing.TB, whole int) int {
	t.Helper()
	if testing.Short() {
		return whole / 8
	}
	return whole
}

func TestRun_Cuts_OutputIsExact(t *testing.T) {
	total := size(t, 64<<20)
	wire := newCutter(t, newGateway(t).address)
	conn := dial(t, wire.address())
	wire.cutEach(3 << 20)
	checked := &lines{t: t}
	o := &owner{t: t, conn: conn, start: flood("p", total), stdout: checked}
	if err := o.run(); err != nil {
		t.Fatal(err)
	}
	if checked.n != total || o.gaps > 0 || o.exit.GetExitCode() != 0 || wire.cutCount() == 0 {
		t.Errorf("%d bytes of %d, %d gaps, %v, %d cuts", checked.n, total, o.gaps, o.exit, wire.cutCount())
	}
}

// slowly is a writer that takes its time.
type slowly struct{ io.Writer }

func (s slowly) Write(p []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return s.Writer.Write(p)
}

// TestRun_CutsOfASlowOwner_LoseNothing has more missing events than a window after each
// cut.
func TestRun_CutsOfASlowOwner_LoseNothing(t *testing.T) {
	const total = 12 << 20
	wire := newCutter(t, newGateway(t).address)
	conn := dial(t, wire.address())
	wire.cutEach(5 << 20)
	checked := &lines{t: t}
	o := &owner{t: t, conn: conn, start: flood("p", total), stdout: slowly{checked}}
	if err := o.run(); err != nil {
		t.Fatal(err)
	}
	if checked.n != total || o.gaps > 0 || wire.cutCount() == 0 {
		t.Errorf("%d bytes of %d, %d gaps, %d cuts", checked.n, total, o.gaps, wire.cutCount())
	}
}

func TestRun_Cuts_InputIsWrittenOnce(t *testing.T) {
	input := bytes.Repeat([]byte("some input that is read once\n"), size(t, 8<<20)/29)
	wire := newCutter(t, newGateway(t).address)
	conn := dial(t, wire.address())
	wire.cutEach(2 << 10) // answers to writes are small
	start := script("p", "exec sha256sum")
	start.Io = &execwirev1.ProcessIo{Io: &execwirev1.ProcessIo_Pipes{Pipes: &execwirev1.PipeIo{Stdin: execwirev1.StdinMode_STDIN_MODE_PIPE}}}
	var said strings.Builder
	o := &owner{t: t, conn: conn, start: start, stdout: &said, input: input}
	if err := o.run(); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%x", sha256.Sum256(input)); !strings.HasPrefix(said.String(), want) || wire.cutCount() == 0 {
		t.Errorf("the process read %q, want %q; %d cuts", &said, want, wire.cutCount())
	}
}

// hold starts a flood whose owner takes nothing.
func hold(t *testing.T, conn *Conn, bytes int) execwirev1.ProcessService_RunProcessClient {
	t.Helper()
	stream, err := execwirev1.NewProcessServiceClient(conn).RunProcess(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{
		Start: &execwirev1.RunStart{Process: flood("slow", bytes)}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	return stream
}

// TestRun_SlowOwner_LosesNothing has nobody else use a connection to
// a server that pushes what it can.
func TestRun_SlowOwner_LosesNothing(t *testing.T) {
	const bytes = 16 << 20
	conn := dial(t, newGateway(t).address, asReference(t, true))
	slow := hold(t, conn, bytes)
	p := conn.processes.find("slow")
	for {
		p.mu.Lock()
		waiting, changed := p.log.bytes, p.changed.Wait()
		p.mu.Unlock()
		if waiting > 2*windowBytes {
			t.Fatalf("%d bytes wait", waiting)
		}
		if waiting >= windowBytes {
			break
		}
		<-changed
	}
	checked := &lines{t: t}
	o := &owner{t: t, conn: conn, start: flood("slow", bytes), stdout: checked}
	for !o.closed {
		m, err := slow.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, event := range m.GetEvents().GetEvents() {
			if err := o.take(event); err != nil {
				t.Fatal(err)
			}
		}
		_ = slow.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Acknowledge{
			Acknowledge: &execwirev1.RunAcknowledge{Seq: o.last}}}) // Recv says why it failed
	}
	if checked.n != bytes || o.gaps > 0 {
		t.Errorf("%d bytes of %d, %d gaps", checked.n, bytes, o.gaps)
	}
}

// TestRun_LostOwner_TerminatesAfterTheGracePeriod leaves a process without giving it
// up.
func TestRun_LostOwner_TerminatesAfterTheGracePeriod(t *testing.T) {
	conn := dial(t, newGateway(t).address)
	processes := execwirev1.NewProcessServiceClient(conn)
	stream, err := processes.RunProcess(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	start := &execwirev1.RunStart{Process: script("p", "exec sleep 1000")}
	start.Grace = durationpb.New(time.Millisecond)
	if err := stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{Start: start}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Acknowledge{
		Acknowledge: &execwirev1.RunAcknowledge{Seq: 5}}}); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = stream.Recv()
	}
	if errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_SEQ_NOT_REACHED || status.Code(err) != codes.OutOfRange {
		t.Errorf("the stream ended with %v", err)
	}
	waited, err := processes.WaitProcess(t.Context(), &execwirev1.WaitProcessRequest{ProcessId: "p", Condition: &execwirev1.WaitProcessRequest_Closed{}})
	if err != nil || !waited.GetSatisfied() || waited.GetProcess().GetExit().GetCause() != execwirev1.ExitCause_EXIT_CAUSE_TERMINATED {
		t.Errorf("got %v, %v", waited, err)
	}
}

func TestRun_Detach_IsRejected(t *testing.T) {
	conn := dial(t, newGateway(t).address)
	processes := execwirev1.NewProcessServiceClient(conn)
	stream := hold(t, conn, 100)
	_ = stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Detach{Detach: &execwirev1.RunDetach{}}})
	var err error
	for err == nil {
		_, err = stream.Recv()
	}
	if err != io.EOF && errorinfo.Reason(err) != execwirev1.ErrorReason_ERROR_REASON_NOT_IMPLEMENTED {
		t.Errorf("the stream ended with %v", err)
	}
	waited, err := processes.WaitProcess(t.Context(), &execwirev1.WaitProcessRequest{ProcessId: "slow"})
	if err != nil || waited.GetProcess().GetExit().GetExitCode() != 0 {
		t.Errorf("got %v, %v", waited, err)
	}
}
