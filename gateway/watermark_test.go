package gateway

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/errorinfo"
)

// expect checks the acknowledgements that the server received, and the seqs of the
// notifications.
func expect(t *testing.T, s *scriptedServer, cl *client, acknowledged string, pushed ...uint64) {
	t.Helper()
	synctest.Wait()
	if got := s.acknowledgements(); got != acknowledged {
		t.Errorf("the server received %q, want %q", got, acknowledged)
	}
	var seqs []uint64
	for _, f := range cl.all() {
		if f.Method != "" {
			seqs = append(seqs, f.Params.Seq)
		}
	}
	if !slices.Equal(seqs, pushed) {
		t.Errorf("events %v were sent, want %v", seqs, pushed)
	}
}

func TestWatermark_IsSetByBytesAndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		cl, _ := srv.attach("")
		s.sendOutput("p", 1, 2)
		time.Sleep(watermarkInterval - 1)
		expect(t, s, cl, "", 1, 2)
		time.Sleep(time.Nanosecond)
		expect(t, s, cl, "p 2", 1, 2)
		time.Sleep(time.Hour)
		expect(t, s, cl, "p 2", 1, 2)

		s.sendEvents("p", outputEvent(3, scriptedWindow/watermarkPart)) // at once
		expect(t, s, cl, "p 2, p 3", 1, 2, 3)
	})
}

// The client has answered a ping, and then stops reading.
func TestWatermark_UnreadOutput_IsNotAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		cl, _ := srv.attach("")
		s.sendOutput("p", 1)
		time.Sleep(watermarkInterval)
		expect(t, s, cl, "p 1", 1)
		cl.stopReading()
		s.sendOutput("p", 2) // the client still reads this one
		s.sendOutput("p", 3)
		time.Sleep(time.Hour)
		expect(t, s, cl, "p 1", 1, 2)
		cl.resumeReading()
		expect(t, s, cl, "p 1, p 3", 1, 2, 3)
	})
}

// newClaimingClient returns a client that confirms events only by claiming them in process/read,
// and the function that lets the server answer: an answer would wait for the mutex of what is
// being sent.
func newClaimingClient(t *testing.T) (s *scriptedServer, cl *client, answer func()) {
	s, srv := newScriptedServer(t)
	answered := make(chan struct{})
	s.read = func(*execwirev1.ReadOutputRequest) *execwirev1.ReadOutputResponse {
		<-answered
		return &execwirev1.ReadOutputResponse{}
	}
	cl, _ = srv.attach("", func(p *pipe, _ *Config) { p.ignoresPings = true })
	return s, cl, func() { close(answered) }
}

// The server may overwrite what is acknowledged. A client can claim an event that is being sent, also one
// that it has and that comes again.
func TestClaim_WhileSending_IsNotAcknowledged(t *testing.T) {
	for name, before := range map[string][]uint64{"the first time": nil, "again": {1, 2, 3}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, cl, answer := newClaimingClient(t)
				s.sendOutput("p", before...)
				synctest.Wait()
				cl.stopReading()
				s.sendEvents("p", outputEvent(1, 60_000)) // the client still reads this one
				s.sendEvents("p", outputEvent(2, 60_000)) // fills the pipe
				s.sendEvents("p", outputEvent(3, 1))
				synctest.Wait()
				cl.ask("process/read", map[string]any{"processId": "p", "afterSeq": 3})
				time.Sleep(time.Second)
				expect(t, s, cl, "p 2", append(before, 1)...)
				cl.resumeReading()
				time.Sleep(proofTimeout)
				expect(t, s, cl, "p 2, p 3", append(before, 1, 2, 3)...)
				answer()
			})
		})
	}
}

// A stream had the process and returned it: events come again, and the server waits for their acknowledgement.
func TestWatermark_ReturnedProcess_IsAcknowledgedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		cl, _ := srv.attach("")
		s.sendOutput("p", 1, 2, 3)
		time.Sleep(watermarkInterval)
		expect(t, s, cl, "p 3", 1, 2, 3)
		s.sendOutput("p", 2, 3)
		time.Sleep(watermarkInterval)
		expect(t, s, cl, "p 3, p 3", 1, 2, 3, 2, 3)
	})
}

// Until the first pong, sent output counts as read after a timeout. From then on
// a pong is required.
func TestWatermark_NoPong_CountsSentAsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		cl, _ := srv.attach("", func(p *pipe, _ *Config) { p.ignoresPings = true })
		s.sendOutput("p", 1)
		time.Sleep(watermarkInterval + proofTimeout - 1)
		expect(t, s, cl, "", 1)
		time.Sleep(time.Nanosecond)
		expect(t, s, cl, "p 1", 1)
		s.sendOutput("p", 2)
		time.Sleep(watermarkInterval)
		expect(t, s, cl, "p 1, p 2", 1, 2)

		cl.pipe.mu.Lock()
		cl.pipe.ignoresPings = false
		cl.pipe.changed.Broadcast()
		cl.pipe.mu.Unlock()
		synctest.Wait() // from now on a pong is required
		cl.stopReading()
		s.sendOutput("p", 3)
		s.sendOutput("p", 4)
		time.Sleep(time.Hour)
		expect(t, s, cl, "p 1, p 2", 1, 2, 3)
	})
}

func TestServerPing_IsAnsweredAfterClientPong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		cl, _ := srv.attach("")
		ping := func(nonce uint64) {
			s.feed <- &execwirev1.AttachSessionResponse{Message: &execwirev1.AttachSessionResponse_Ping{Ping: &execwirev1.SessionPing{Nonce: nonce}}}
		}
		ping(1)
		expect(t, s, cl, "pong 1")
		cl.pipe.mu.Lock()
		cl.pipe.ignoresPings = true
		cl.pipe.mu.Unlock()
		for nonce := range uint64(5) {
			ping(nonce + 2)
		}
		time.Sleep(time.Hour)
		expect(t, s, cl, "pong 1")
		cl.pipe.mu.Lock()
		cl.pipe.ignoresPings = false
		cl.pipe.changed.Broadcast()
		cl.pipe.mu.Unlock()
		expect(t, s, cl, "pong 1, pong 2, pong 6")
	})
}

// No output of the resumed session was acknowledged.
func TestBacklog_Read_IsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		s.last["p"] = 3
		cl := srv.connect()
		cl.must("initialize", map[string]any{"clientName": "x", "resumeSessionId": "s"})
		s.sendOutput("p", 1, 2, 3)
		time.Sleep(time.Hour)
		expect(t, s, cl, "")
		cl.notify("initialized", nil)
		s.sendOutput("p", 4)
		time.Sleep(backlogTimeout - 1)
		expect(t, s, cl, "", 4)

		cl.must("process/read", map[string]any{"processId": "p", "afterSeq": 1})
		expect(t, s, cl, "p 1", 4) // acknowledged by the read
		time.Sleep(watermarkInterval)
		expect(t, s, cl, "p 1, p 4", 4) // the client has confirmed the response of the read
	})
}

func TestBacklog_Unread_IsAcknowledgedAfterTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		s.last["p"], s.last["q"] = 3, 2
		cl, _ := srv.attach("s")
		s.sendOutput("p", 1, 2, 3, 4)
		s.sendOutput("q", 2)
		time.Sleep(backlogTimeout / 2)
		cl.must("process/read", map[string]any{"processId": "q", "afterSeq": 0})
		time.Sleep(backlogTimeout/2 - 1)
		expect(t, s, cl, "q 2", 4)
		time.Sleep(time.Nanosecond + watermarkInterval)
		expect(t, s, cl, "q 2, p 4", 4)
	})
}

// Output is lost in the middle, and within a backlog, where the client finds the
// gap by reading.
func TestGap_IsSentWithNextEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		s.last["q"] = 9
		cl, _ := srv.attach("s")
		gap := func(first uint64) *execwirev1.ProcessEvent {
			return &execwirev1.ProcessEvent{Event: &execwirev1.ProcessEvent_Gap{Gap: &execwirev1.OutputGap{FirstAvailableSeq: first, DroppedBytes: 7}}}
		}
		s.sendEvents("p", outputEvent(1, 1), gap(5))
		s.sendEvents("p", outputEvent(5, 1), outputEvent(6, 1))
		s.sendEvents("q", gap(4), outputEvent(4, 1))
		time.Sleep(time.Second)
		synctest.Wait()
		var gaps []string
		for _, f := range cl.all() {
			if f.Params.Gap != nil {
				gaps = append(gaps, fmt.Sprintf("%s %d %v", f.Params.ProcessID, f.Params.Seq, *f.Params.Gap))
			}
		}
		if want := []string{"p 5 {5 7}"}; !slices.Equal(gaps, want) {
			t.Errorf("gaps are reported as %v, want %v", gaps, want)
		}
	})
}

// The close code reports the reason.
func TestAttachmentEnd_ClosesConnection(t *testing.T) {
	reason := func(code codes.Code, reason string) error {
		st, err := status.New(code, "the server's words").WithDetails(&errdetails.ErrorInfo{Domain: errorinfo.Domain, Reason: reason})
		if err != nil {
			t.Fatal(err)
		}
		return st.Err()
	}
	for name, test := range map[string]struct {
		end  error
		code int
		good bool
	}{
		"taken over":  {reason(codes.Aborted, "SESSION_TAKEN_OVER"), closePolicy, false},
		"closed":      {reason(codes.Aborted, "SESSION_CLOSED"), closePolicy, false},
		"draining":    {reason(codes.Unavailable, "DRAINING"), closeGoingAway, true},
		"unreachable": {status.Error(codes.Unavailable, "connection refused"), closeTryAgain, false},
		"failed":      {reason(codes.Internal, "INTERNAL"), closeInternal, false},
		"no reason":   {nil, closeInternal, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, srv := newScriptedServer(t)
				cl, _ := srv.attach("")
				s.end <- test.end
				if err := cl.ended(); (err == nil) != test.good || cl.pipe.code != test.code || cl.pipe.reason == "" {
					t.Errorf("Serve returned %v, and the connection was closed with %d %q", err, cl.pipe.code, cl.pipe.reason)
				}
				if s.finished {
					t.Error("the session was closed")
				}
			})
		})
	}
}

// The connection starts with records of many processes.
func TestRecords_ClosedProcesses_AreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScriptedServer(t)
		p := newPipe()
		gateway, err := New(Config{})
		if err != nil {
			t.Fatal(err)
		}
		c := newReceiver(gateway, t.Context(), "p", srv.channel, p)
		var serving sync.WaitGroup
		serving.Go(func() { _ = c.serve() })
		cl := &client{t: t, pipe: p, gate: make(chan struct{}), quota: -1}
		cl.changed.L = &cl.mu
		close(cl.gate)
		serving.Go(cl.read)
		cl.initialize("")
		for i := range 100 {
			id := fmt.Sprint(i)
			s.sendOutput(id, 1)
			s.sendEvents(id, &execwirev1.ProcessEvent{Seq: 2, Event: &execwirev1.ProcessEvent_Closed{Closed: &execwirev1.ProcessClosed{}}})
			cl.must("process/read", map[string]any{"processId": id, "afterSeq": 2})
			cl.call("process/read", map[string]any{"processId": "unknown" + id})
		}
		time.Sleep(time.Second)
		synctest.Wait()
		c.table.mu.Lock()
		left := len(c.table.records)
		c.table.mu.Unlock()
		if left != 0 {
			t.Errorf("%d records are left", left)
		}
		p.drop()
		serving.Wait()
	})
}
