package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
)

// readAfter makes the client read a process after seq.
func (cl *client) readAfter(id string, seq uint64) {
	cl.t.Helper()
	cl.must("process/read", map[string]any{"processId": id, "afterSeq": seq})
	synctest.Wait() // until the connection has processed it
}

// Clients of older versions read output after a notification. The server must not
// drop it before.
func TestReader_UnreadOutput_IsNotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		cl, _ := srv.attach("")
		s.sendOutput("p", 1)
		s.last["p"] = 1
		synctest.Wait()
		cl.readAfter("p", 0)
		cl.readAfter("p", 0)
		time.Sleep(watermarkInterval)
		expect(t, s, cl, "p 1", 1)

		s.sendOutput("p", 2, 3)
		s.last["p"] = 3
		time.Sleep(readerTimeout - watermarkInterval)
		expect(t, s, cl, "p 1", 1, 2, 3)
		cl.readAfter("p", 1)
		time.Sleep(watermarkInterval)
		expect(t, s, cl, "p 1, p 3", 1, 2, 3)

		time.Sleep(time.Hour) // without new output the client stays a reader
		s.sendOutput("p", 4)
		s.last["p"] = 4
		time.Sleep(readerTimeout - watermarkInterval)
		expect(t, s, cl, "p 1, p 3", 1, 2, 3, 4)
		cl.readAfter("p", 4)
		expect(t, s, cl, "p 1, p 3, p 4", 1, 2, 3, 4) // acknowledged by the read
	})
}

// Clients that run one command disconnect when they have its end. The server must
// have the acknowledgement by then.
func TestReader_End_IsAcknowledgedAtOnce(t *testing.T) {
	end := func(seq uint64) *execwirev1.ProcessEvent {
		return &execwirev1.ProcessEvent{Seq: seq, Event: &execwirev1.ProcessEvent_Closed{Closed: &execwirev1.ProcessClosed{}}}
	}
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		cl, _ := srv.attach("")
		s.sendOutput("p", 1)
		expect(t, s, cl, "", 1)
		s.sendEvents("p", end(2))
		expect(t, s, cl, "p 2", 1, 2)

		s.sendOutput("q", 1)
		s.last["q"] = 1
		synctest.Wait()
		cl.readAfter("q", 0)
		cl.readAfter("q", 0)
		s.sendEvents("q", end(2))
		s.last["q"], s.closed = 2, true
		expect(t, s, cl, "p 2, q 1", 1, 2, 1, 2)
		cl.readAfter("q", 1)
		expect(t, s, cl, "p 2, q 1, q 2", 1, 2, 1, 2)
	})
}

// The client reads for a while, and then relies on notifications.
func TestReader_StopsReading_DelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		cl, _ := srv.attach("")
		s.sendOutput("p", 1)
		s.last["p"] = 1
		synctest.Wait()
		for range 5 {
			cl.readAfter("p", 0)
		}
		time.Sleep(watermarkInterval)
		expect(t, s, cl, "p 1", 1)
		s.sendOutput("p", 2)
		time.Sleep(readerTimeout + watermarkInterval)
		expect(t, s, cl, "p 1, p 2", 1, 2)
		s.sendOutput("p", 3)
		time.Sleep(watermarkInterval)
		expect(t, s, cl, "p 1, p 2, p 3", 1, 2, 3)
	})
}

// Newer clients read once what they missed, here of two processes.
func TestReader_OneRead_IsNoReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		s.last["p"], s.last["q"] = 1, 1
		cl, _ := srv.attach("s")
		s.sendOutput("p", 1)
		s.sendOutput("q", 1)
		synctest.Wait()
		cl.readAfter("p", 0)
		cl.readAfter("q", 0)
		time.Sleep(watermarkInterval)
		synctest.Wait()
		s.sendOutput("p", 2)
		time.Sleep(watermarkInterval)
		synctest.Wait()
		acknowledged := s.acknowledgements()
		if acknowledged != "p 1, q 1, p 2" && acknowledged != "q 1, p 1, p 2" {
			t.Errorf("the server received %q", acknowledged)
		}
	})
}

// The client confirms notifications during a read. The server must not drop that
// output before it has answered the read.
func TestReader_ReadInProgress_IsNotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		s.last["p"] = 1
		cl, _ := srv.attach("s")
		var meanwhile string
		s.read = func(req *execwirev1.ReadOutputRequest) *execwirev1.ReadOutputResponse {
			after := req.GetAfterSeq()
			s.sendOutput("p", after+1, after+2)
			time.Sleep(2 * watermarkInterval)
			meanwhile = s.acknowledgements()
			return &execwirev1.ReadOutputResponse{NextAfterSeq: after + 2, LastSeq: after + 2,
				Events: []*execwirev1.ProcessEvent{outputEvent(after+1, 1), outputEvent(after+2, 1)}}
		}
		cl.readAfter("p", 1)
		if meanwhile != "p 1" { // acknowledged by the read
			t.Errorf("before the server had answered it received %q", meanwhile)
		}
		expect(t, s, cl, "p 1, p 3", 2, 3)
		cl.readAfter("p", 3)
		if meanwhile != "p 1, p 3" {
			t.Errorf("before the server had answered again it received %q", meanwhile)
		}
	})
}

// The client asks for a seq that the process has not reached, and the process
// continues meanwhile.
func TestRead_AheadOfProcess_MissesNothing(t *testing.T) {
	s, srv := newScriptedServer(t)
	s.refuse = func(req *execwirev1.ReadOutputRequest) error {
		if req.GetAfterSeq() <= s.last["p"] {
			return nil
		}
		ahead, err := status.New(codes.OutOfRange, "ahead").WithDetails(&errdetails.ErrorInfo{Domain: errorinfo.Domain, Reason: "SEQ_NOT_REACHED"})
		if err != nil {
			t.Error(err)
		}
		return ahead.Err()
	}
	s.describe = func() *execwirev1.Process {
		s.last["p"] = 3
		return &execwirev1.Process{LastSeq: 3}
	}
	cl, _ := srv.attach("")
	a := cl.readOutput("p", "afterSeq", 1)
	if len(a.Chunks) != 2 || a.Chunks[0].Seq != 2 || a.NextSeq != 4 {
		t.Errorf("after event 1 the client read %+v", a)
	}
}
