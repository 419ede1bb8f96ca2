package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/gateway/rpcerror"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// readAfter has the client read a process after seq.
func (cl *client) readAfter(id string, seq uint64) {
	cl.t.Helper()
	cl.must("process/read", map[string]any{"processId": id, "afterSeq": seq})
	synctest.Wait() // until the connection has noted that it said so
}

// TestWhatAReaderDidNotReadIsNotAcknowledged has a client that is slow to read
// what it was woken for, as older ones are: the output must not be dropped before.
func TestWhatAReaderDidNotReadIsNotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, core := newScriptedCore(t)
		cl, _ := core.attach("")
		s.say("p", 1)
		s.last["p"] = 1
		synctest.Wait()
		cl.readAfter("p", 0)
		cl.readAfter("p", 0)
		time.Sleep(watermarkInterval)
		expect(t, s, cl, "p 1", 1)

		s.say("p", 2, 3)
		s.last["p"] = 3
		time.Sleep(readerTimeout - watermarkInterval)
		expect(t, s, cl, "p 1", 1, 2, 3)
		cl.readAfter("p", 1)
		time.Sleep(watermarkInterval)
		expect(t, s, cl, "p 1, p 3", 1, 2, 3)

		time.Sleep(time.Hour) // with nothing to be read it stays a reader
		s.say("p", 4)
		s.last["p"] = 4
		time.Sleep(readerTimeout - watermarkInterval)
		expect(t, s, cl, "p 1, p 3", 1, 2, 3, 4)
		cl.readAfter("p", 4)
		expect(t, s, cl, "p 1, p 3, p 4", 1, 2, 3, 4) // says the client itself
	})
}

// TestTheEndIsProvenAtOnce has clients that leave when they have the end of their
// process, as those that run one command do: the core must not wait for them.
func TestTheEndIsProvenAtOnce(t *testing.T) {
	end := func(seq uint64) *execwirev1.ProcessEvent {
		return &execwirev1.ProcessEvent{Seq: seq, Event: &execwirev1.ProcessEvent_Closed{Closed: &execwirev1.ProcessClosed{}}}
	}
	synctest.Test(t, func(t *testing.T) {
		s, core := newScriptedCore(t)
		cl, _ := core.attach("")
		s.say("p", 1)
		expect(t, s, cl, "", 1)
		s.sendEvents("p", end(2))
		expect(t, s, cl, "p 2", 1, 2)

		s.say("q", 1)
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

// TestAReaderThatStopsReadingHoldsNothingBack has a client that reads for a while
// and then takes what it is sent.
func TestAReaderThatStopsReadingHoldsNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, core := newScriptedCore(t)
		cl, _ := core.attach("")
		s.say("p", 1)
		s.last["p"] = 1
		synctest.Wait()
		for range 5 {
			cl.readAfter("p", 0)
		}
		time.Sleep(watermarkInterval)
		expect(t, s, cl, "p 1", 1)
		s.say("p", 2)
		time.Sleep(readerTimeout + watermarkInterval)
		expect(t, s, cl, "p 1, p 2", 1, 2)
		s.say("p", 3)
		time.Sleep(watermarkInterval)
		expect(t, s, cl, "p 1, p 2, p 3", 1, 2, 3)
	})
}

// TestOneReadMakesNoReader has a client that reads once what it missed, as newer
// ones do, and again another process.
func TestOneReadMakesNoReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, core := newScriptedCore(t)
		s.last["p"], s.last["q"] = 1, 1
		cl, _ := core.attach("s")
		s.say("p", 1)
		s.say("q", 1)
		synctest.Wait()
		cl.readAfter("p", 0)
		cl.readAfter("q", 0)
		time.Sleep(watermarkInterval)
		synctest.Wait()
		s.say("p", 2)
		time.Sleep(watermarkInterval)
		synctest.Wait()
		told := s.wasTold()
		if told != "p 1, q 1, p 2" && told != "q 1, p 1, p 2" {
			t.Errorf("the core was told %q", told)
		}
	})
}

// TestWhatIsBeingReadIsNotAcknowledged has clients show that they have what is
// pushed while they read: the core must not drop it before it has answered.
func TestWhatIsBeingReadIsNotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, core := newScriptedCore(t)
		s.last["p"] = 1
		cl, _ := core.attach("s")
		var meanwhile string
		s.read = func(req *execwirev1.ReadOutputRequest) *execwirev1.ReadOutputResponse {
			after := req.GetAfterSeq()
			s.say("p", after+1, after+2)
			time.Sleep(2 * watermarkInterval)
			meanwhile = s.wasTold()
			return &execwirev1.ReadOutputResponse{NextAfterSeq: after + 2, LastSeq: after + 2,
				Events: []*execwirev1.ProcessEvent{outputEvent(after+1, 1), outputEvent(after+2, 1)}}
		}
		cl.readAfter("p", 1)
		if meanwhile != "p 1" { // says the client itself
			t.Errorf("before the core had answered it was told %q", meanwhile)
		}
		expect(t, s, cl, "p 1, p 3", 2, 3)
		cl.readAfter("p", 3)
		if meanwhile != "p 1, p 3" {
			t.Errorf("before the core had answered again it was told %q", meanwhile)
		}
	})
}

// TestAReadThatAProcessOvertakesMissesNothing has a client that is ahead of its
// process, which goes on while it is being asked how far it is.
func TestAReadThatAProcessOvertakesMissesNothing(t *testing.T) {
	s, core := newScriptedCore(t)
	s.refuse = func(req *execwirev1.ReadOutputRequest) error {
		if req.GetAfterSeq() <= s.last["p"] {
			return nil
		}
		ahead, err := status.New(codes.OutOfRange, "ahead").WithDetails(&errdetails.ErrorInfo{Domain: rpcerror.Domain, Reason: "SEQ_NOT_REACHED"})
		if err != nil {
			t.Error(err)
		}
		return ahead.Err()
	}
	s.describe = func() *execwirev1.Process {
		s.last["p"] = 3
		return &execwirev1.Process{LastSeq: 3}
	}
	cl, _ := core.attach("")
	a := cl.readOutput("p", "afterSeq", 1)
	if len(a.Chunks) != 2 || a.Chunks[0].Seq != 2 || a.NextSeq != 4 {
		t.Errorf("after event 1 it was told %+v", a)
	}
}
