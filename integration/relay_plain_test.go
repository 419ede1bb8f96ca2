package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	relayv1 "github.com/execwire/execwire/gen/go/codex/exec_server/relay/v1"
)

// plainLink is a stream of a harness of the reference: it acknowledges nothing,
// numbers what it sends and looks at no number.
type plainLink struct {
	websocket *websocketLink
	stream    string
	seq       uint32 // of what is sent next
	heard     uint32 // how many messages came; of the reader
}

// plainClient connects to the executor as a harness of the reference does.
func (f *fleet) plainClient(t *testing.T) *rpcClient {
	t.Helper()
	link, err := f.plainLink()
	if err != nil {
		t.Fatal(err)
	}
	return newRPCClient(t, link, nil)
}

func (f *fleet) plainLink() (*plainLink, error) {
	websocket, err := upgradeAt(f.near.listener.Addr().String(), "/executor/"+executorID+"?role=harness", nil)
	if err != nil {
		return nil, err
	}
	l := &plainLink{websocket: websocket, stream: uuid.NewString()}
	return l, l.put(&relayv1.RelayMessageFrame{Body: &relayv1.RelayMessageFrame_Resume{Resume: &relayv1.RelayResume{}}})
}

func (l *plainLink) put(frame *relayv1.RelayMessageFrame) error {
	frame.Version, frame.StreamId = 1, l.stream
	payload, err := proto.Marshal(frame)
	if err != nil {
		return err
	}
	return l.websocket.frame(opBinary, true, payload)
}

// send implements rpcLink.
func (l *plainLink) send(message []byte) error {
	data := &relayv1.RelayData{Seq: l.seq, SegmentCount: 1, Payload: message}
	l.seq++
	return l.put(&relayv1.RelayMessageFrame{Body: &relayv1.RelayMessageFrame_Data{Data: data}})
}

// resetError is a stream that was reset.
type resetError struct{ reason string }

func (e *resetError) Error() string { return "the stream was reset: " + e.reason }

// receive implements rpcLink. What the reference would not understand is an error.
func (l *plainLink) receive() (rpcFrame, error) {
	for {
		frame, err := l.websocket.receive()
		if err != nil || frame.kind == "close" {
			return rpcFrame{}, fmt.Errorf("the websocket ended: %q, %w", frame.data, err)
		}
		if frame.kind != "binary" {
			continue
		}
		var relayed relayv1.RelayMessageFrame
		if err := proto.Unmarshal(frame.data, &relayed); err != nil {
			return rpcFrame{}, err
		}
		data := relayed.GetData()
		switch {
		case relayed.GetReset_() != nil:
			return rpcFrame{}, &resetError{relayed.GetReset_().GetReason()}
		case data == nil || relayed.GetVersion() != 1 || relayed.GetStreamId() != l.stream ||
			data.GetSeq() != l.heard || data.GetSegmentIndex() != 0 || data.GetSegmentCount() != 1:
			return rpcFrame{}, fmt.Errorf("a frame that the reference does not know: %.200s", relayed.String())
		}
		l.heard++
		return rpcFrame{kind: "text", data: data.GetPayload()}, nil
	}
}

// drop implements rpcLink.
func (l *plainLink) drop() { l.websocket.drop() }

// resumePlainly takes a session up on a new stream, as soon as the executor is there
// and knows that the one before is gone.
func (f *fleet) resumePlainly(t *testing.T, session string) *rpcClient {
	t.Helper()
	var c *rpcClient
	eventually(t, "the session can be resumed", func() bool {
		link, err := f.plainLink()
		if err != nil {
			return false // the executor is not there yet
		}
		c = newRPCClient(t, link, nil)
		answer := c.call("initialize", resumeOf(session))
		if answer.Error != nil {
			c.drop()
			return false
		}
		c.decodeSession(answer)
		return true
	})
	c.notify("initialized", rpcParams{})
	return c
}

// A harness of the reference finds what it knows, and takes its session up on
// another stream when its websocket is lost.
func TestAHarnessOfTheReferenceThroughTheHub(t *testing.T) {
	f := newFleet(t)
	c := f.plainClient(t).initialize("")
	c.start("quick", shell("printf hello; exit 3"), nil)
	c.expectEnd("quick", 3)
	c.awaitOutput("quick", "stdout", "hello")
	c.start("p", shell("echo before; read line; echo $line; exit 4"), rpcParams{"pipeStdin": true})
	c.awaitOutput("p", "stdout", "before\n")

	f.near.cut()
	c.awaitEnd()
	again := f.resumePlainly(t, c.session)
	if again.session != c.session {
		t.Errorf("the session is %s, and was %s", again.session, c.session)
	}
	again.write("p", "after\n", "accepted")
	if exited := again.awaitEvent("process/exited", "p"); exited.ExitCode != 4 {
		t.Errorf("it exited with %d", exited.ExitCode)
	}
	again.awaitEvent("process/closed", "p")
	read := again.readProcess("p", nil)
	said := ""
	for _, chunk := range read.Chunks {
		said += string(chunk.Chunk)
	}
	if said != "before\nafter\n" || !read.Closed {
		t.Errorf("after the loss: %+v, %q", read, said)
	}

	// The executor's websocket is lost: every stream of such harnesses with it.
	f.far.cut()
	again.awaitEnd()
	if reset, ok := again.end().(*resetError); !ok || reset.reason != "executor_gone" {
		t.Errorf("the stream ended with %v", again.end())
	}
	f.resumePlainly(t, c.session)
}

// What does not fit into one frame is refused, with what to do instead, and
// nobody loses a connection by it.
func TestAPlainHarnessIsNotSentMoreThanAFrameHolds(t *testing.T) {
	slow(t)
	f := newFleet(t)
	c := f.plainClient(t).initialize("")
	path := filepath.Join(shortDir(t), "f")
	for _, tt := range []struct {
		size int64
		fits bool
	}{{10 << 20, true}, {12 << 20, false}, {100, true}} {
		if err := os.WriteFile(path, make([]byte, tt.size), 0o600); err != nil {
			t.Fatal(err)
		}
		if !tt.fits {
			if refused := c.refused("fs/readFile", rpcParams{"path": path}, -32600); !strings.Contains(refused.Message, "fs/open") {
				t.Errorf("refused with %q", refused.Message)
			}
			continue
		}
		var got struct{ DataBase64 []byte }
		if c.result("fs/readFile", rpcParams{"path": path}, &got); int64(len(got.DataBase64)) != tt.size {
			t.Errorf("read %d bytes of %d", len(got.DataBase64), tt.size)
		}
	}
}
