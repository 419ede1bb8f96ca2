package relay

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	relayv1 "github.com/execwire/execwire/gen/go/codex/exec_server/relay/v1"
	"github.com/execwire/execwire/integration/harness"
)

// plainConn is a stream of a harness of the reference: it acknowledges nothing, numbers its
// messages and ignores received numbers.
type plainConn struct {
	websocket *harness.WebsocketConn
	stream    string
	seq       uint32 // of what is sent next
	heard     uint32 // number of messages received; of the reader
}

// plainClient connects to the executor as a harness of the reference does.
func plainClient(f *harness.Fleet, t *testing.T) *harness.RPCClient {
	t.Helper()
	link, err := dialPlain(f)
	if err != nil {
		t.Fatal(err)
	}
	return harness.NewRPCClient(t, link, nil)
}

func dialPlain(f *harness.Fleet) (*plainConn, error) {
	websocket, err := harness.UpgradeAt(f.Near.Listener.Addr().String(), "/executor/"+harness.ExecutorID+"?role=harness", nil)
	if err != nil {
		return nil, err
	}
	l := &plainConn{websocket: websocket, stream: uuid.NewString()}
	return l, l.put(&relayv1.RelayMessageFrame{Body: &relayv1.RelayMessageFrame_Resume{Resume: &relayv1.RelayResume{}}})
}

func (l *plainConn) put(frame *relayv1.RelayMessageFrame) error {
	frame.Version, frame.StreamId = 1, l.stream
	payload, err := proto.Marshal(frame)
	if err != nil {
		return err
	}
	return l.websocket.Frame(harness.OpBinary, true, payload)
}

// send implements rpcConn.
func (l *plainConn) Send(message []byte) error {
	data := &relayv1.RelayData{Seq: l.seq, SegmentCount: 1, Payload: message}
	l.seq++
	return l.put(&relayv1.RelayMessageFrame{Body: &relayv1.RelayMessageFrame_Data{Data: data}})
}

// resetError is a stream that was reset.
type resetError struct{ reason string }

func (e *resetError) Error() string { return "the stream was reset: " + e.reason }

// receive implements rpcConn. A frame that the reference would not understand is an error.
func (l *plainConn) Receive() (harness.RPCFrame, error) {
	for {
		frame, err := l.websocket.Receive()
		if err != nil || frame.Kind == "close" {
			return harness.RPCFrame{}, fmt.Errorf("the websocket ended: %q, %w", frame.Data, err)
		}
		if frame.Kind != "binary" {
			continue
		}
		var relayed relayv1.RelayMessageFrame
		if err := proto.Unmarshal(frame.Data, &relayed); err != nil {
			return harness.RPCFrame{}, err
		}
		data := relayed.GetData()
		switch {
		case relayed.GetReset_() != nil:
			return harness.RPCFrame{}, &resetError{relayed.GetReset_().GetReason()}
		case data == nil || relayed.GetVersion() != 1 || relayed.GetStreamId() != l.stream ||
			data.GetSeq() != l.heard || data.GetSegmentIndex() != 0 || data.GetSegmentCount() != 1:
			return harness.RPCFrame{}, fmt.Errorf("a frame that the reference does not know: %.200s", relayed.String())
		}
		l.heard++
		return harness.RPCFrame{Kind: "text", Data: data.GetPayload()}, nil
	}
}

// drop implements rpcConn.
func (l *plainConn) Drop() { l.websocket.Drop() }

// resumePlainly resumes a session on a new stream, once the executor is there and has noticed
// the end of the previous one.
func resumePlainly(f *harness.Fleet, t *testing.T, session string) *harness.RPCClient {
	t.Helper()
	var c *harness.RPCClient
	harness.Eventually(t, "the session can be resumed", func() bool {
		link, err := dialPlain(f)
		if err != nil {
			return false // the executor is not there yet
		}
		c = harness.NewRPCClient(t, link, nil)
		answer := c.Call("initialize", harness.ResumeOf(session))
		if answer.Error != nil {
			c.Drop()
			return false
		}
		c.DecodeSession(answer)
		return true
	})
	c.Notify("initialized", harness.RPCParams{})
	return c
}

// A harness of the reference works with this hub, and resumes its session on another stream
// after a lost websocket.
func TestHub_ReferenceHarness_Works(t *testing.T) {
	f := harness.NewFleet(t)
	c := plainClient(f, t).Initialize("")
	c.Start("quick", harness.Shell("printf hello; exit 3"), nil)
	c.ExpectEnd("quick", 3)
	c.AwaitOutput("quick", "stdout", "hello")
	c.Start("p", harness.Shell("echo before; read line; echo $line; exit 4"), harness.RPCParams{"pipeStdin": true})
	c.AwaitOutput("p", "stdout", "before\n")

	f.Near.Cut()
	c.AwaitEnd()
	again := resumePlainly(f, t, c.Session)
	if again.Session != c.Session {
		t.Errorf("the session is %s, and was %s", again.Session, c.Session)
	}
	again.Write("p", "after\n", "accepted")
	if exited := again.AwaitEvent("process/exited", "p"); exited.ExitCode != 4 {
		t.Errorf("it exited with %d", exited.ExitCode)
	}
	again.AwaitEvent("process/closed", "p")
	read := again.ReadProcess("p", nil)
	said := ""
	for _, chunk := range read.Chunks {
		said += string(chunk.Chunk)
	}
	if said != "before\nafter\n" || !read.Closed {
		t.Errorf("after the loss: %+v, %q", read, said)
	}

	// The executor's websocket is lost: every stream of such harnesses with it.
	f.Far.Cut()
	again.AwaitEnd()
	if reset, ok := again.End().(*resetError); !ok || reset.reason != "executor_gone" {
		t.Errorf("the stream ended with %v", again.End())
	}
	resumePlainly(f, t, c.Session)
}

// A message that does not fit into one frame is rejected with advice, and no connection is
// lost.
func TestHub_PlainHarness_GetsNoLargerFrames(t *testing.T) {
	harness.Slow(t)
	f := harness.NewFleet(t)
	c := plainClient(f, t).Initialize("")
	path := filepath.Join(harness.ShortDir(t), "f")
	for _, tt := range []struct {
		size int64
		fits bool
	}{{10 << 20, true}, {12 << 20, false}, {100, true}} {
		if err := os.WriteFile(path, make([]byte, tt.size), 0o600); err != nil {
			t.Fatal(err)
		}
		if !tt.fits {
			if refused := c.Refused("fs/readFile", harness.RPCParams{"path": path}, -32600); !strings.Contains(refused.Message, "fs/open") {
				t.Errorf("refused with %q", refused.Message)
			}
			continue
		}
		var got struct{ DataBase64 []byte }
		if c.Result("fs/readFile", harness.RPCParams{"path": path}, &got); int64(len(got.DataBase64)) != tt.size {
			t.Errorf("read %d bytes of %d", len(got.DataBase64), tt.size)
		}
	}
}
