package execserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/jsonrpc"
)

// scripted is a server that answers as a test says.
type scripted struct {
	answer func(id int64, method string) []string
	said   chan string
	over   chan struct{}
	close  sync.Once
}

func newScripted(answer func(id int64, method string) []string) *scripted {
	return &scripted{answer: answer, said: make(chan string, 100), over: make(chan struct{})}
}

func (s *scripted) Receive() ([]byte, error) {
	select {
	case message := <-s.said:
		if limit, tooLarge := strings.CutPrefix(message, "too large"); tooLarge {
			return nil, &jsonrpc.TooLargeError{What: "message" + limit, Limit: 1}
		}
		return []byte(message), nil
	case <-s.over:
		return nil, io.ErrUnexpectedEOF
	}
}

func (s *scripted) Send(message []byte) error {
	var sent struct {
		ID     int64
		Method string
	}
	if err := json.Unmarshal(message, &sent); err != nil {
		return err
	}
	if sent.Method == "initialize" {
		s.said <- fmt.Sprintf(`{"id":%d,"result":{"sessionId":"s","protocolVersion":"exec-server.v0","environmentInfo":{}}}`, sent.ID)
		return nil
	}
	for _, message := range s.answer(sent.ID, sent.Method) {
		s.said <- message
	}
	return nil
}

func (s *scripted) Begin() (io.WriteCloser, error) { return nil, errors.ErrUnsupported }
func (s *scripted) Prove(context.Context) error    { return jsonrpc.ErrCannotProve }
func (s *scripted) Peer() string                   { return "scripted server" }
func (s *scripted) Close(int, string) error {
	s.close.Do(func() { close(s.over) })
	return nil
}

// TestProtocolViolation_EndsTheConnection has a run going on, of which the server says
// something that it must not say.
func TestProtocolViolation_EndsTheConnection(t *testing.T) {
	output := func(seq int) string {
		return fmt.Sprintf(`{"method":"process/output","params":{"processId":"p","seq":%d,"stream":"stdout","chunk":"aGkK"}}`, seq)
	}
	for name, says := range map[string][]string{
		"an id that no request had":     {`{"id":77,"result":{}}`},
		"an id that is a text":          {`{"id":"a","result":{}}`},
		"an answer for the second time": {`{"id":1,"result":{}}`},
		"no JSON":                       {`no`},
		"a message that is too large":   {`too large`},
		"an unknown stream":             {`{"method":"process/output","params":{"processId":"p","seq":1,"stream":"x","chunk":"aGkK"}}`},
		"output that is no base64":      {`{"method":"process/output","params":{"processId":"p","seq":1,"stream":"stdout","chunk":"*"}}`},
		"the seq 0":                     {output(0)},
		"a chunk beyond the limit":      {strings.Replace(output(1), "aGkK", strings.Repeat("aGkK", maxMessageOutput/3+1), 1)},
		"an exit without a code":        {`{"method":"process/exited","params":{"processId":"p","seq":1}}`},
	} {
		t.Run(name, func(t *testing.T) {
			server := newScripted(func(id int64, method string) []string {
				if method != "process/start" {
					return nil
				}
				return append([]string{fmt.Sprintf(`{"id":%d,"result":{"sandboxType":"none"}}`, id)}, says...)
			})
			conn := dial(t, "", func(o *Options) {
				o.Open = func(context.Context) (jsonrpc.Transport, error) { return server, nil }
			})
			stream, err := execwirev1.NewProcessServiceClient(conn).RunProcess(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = stream.Send(&execwirev1.RunProcessRequest{Message: &execwirev1.RunProcessRequest_Start{
				Start: &execwirev1.RunStart{Process: script("p", "true")}}})
			for err == nil {
				_, err = stream.Recv()
			}
			<-conn.ctx.Done()
			var lost *LostError
			var broken *ProtocolError
			if !errors.As(context.Cause(conn.ctx), &lost) || !errors.As(context.Cause(conn.ctx), &broken) {
				t.Errorf("the connection is gone because of %v", context.Cause(conn.ctx))
			}
			_, err = start(t, conn, script("q", "true"))
			if !errors.As(err, &broken) {
				t.Errorf("a later call failed with %v", err)
			}
		})
	}
}

// TestNotifications_ExitBeforeOutput_AreReordered is what servers of the reference send.
func TestNotifications_ExitBeforeOutput_AreReordered(t *testing.T) {
	server := newScripted(func(id int64, method string) []string {
		switch method {
		case "process/start":
			return []string{
				`{"method":"process/exited","params":{"processId":"p","seq":1,"exitCode":3}}`,
				fmt.Sprintf(`{"id":%d,"result":{"processId":"p"}}`, id),
				`{"method":"process/closed","params":{"processId":"p","seq":3}}`,
				`{"method":"process/output","params":{"processId":"p","seq":2,"stream":"stdout","chunk":"aGkK"}}`,
			}
		case "process/read":
			return []string{fmt.Sprintf(`{"id":%d,"result":{"chunks":[{"seq":2,"stream":"stdout","chunk":"aGkK"}],"nextSeq":4,"exited":true,"exitCode":3,"closed":true,"failure":null}}`, id)}
		}
		return nil
	})
	conn := dial(t, "", func(o *Options) {
		o.Open = func(context.Context) (jsonrpc.Transport, error) {
			return &older{server}, nil
		}
	})
	var said strings.Builder
	o := &owner{t: t, conn: conn, start: script("p", "echo hi; exit 3"), stdout: &said}
	if err := o.run(); err != nil || said.String() != "hi\n" || o.exit.GetExitCode() != 3 || o.gaps > 0 {
		t.Errorf("got %q, %v, %d gaps, %v", &said, o.exit, o.gaps, err)
	}
}

// TestNotifications_OutOfOrder_AreReordered is what servers of the reference send
// of two streams. What is only late is not read: they keep little, and it could be gone.
func TestNotifications_OutOfOrder_AreReordered(t *testing.T) {
	const output = `{"method":"process/output","params":{"processId":"p","seq":%d,"stream":"%s","chunk":"%s"}}`
	server := newScripted(func(id int64, method string) []string {
		switch method {
		case "process/start":
			return []string{
				fmt.Sprintf(`{"id":%d,"result":{"processId":"p"}}`, id),
				fmt.Sprintf(output, 1, "stdout", "MQ=="), fmt.Sprintf(output, 4, "stdout", "NA=="),
				fmt.Sprintf(output, 3, "stderr", "Mw=="), fmt.Sprintf(output, 2, "stderr", "Mg=="),
				`{"method":"process/closed","params":{"processId":"p","seq":6}}`,
				`{"method":"process/exited","params":{"processId":"p","seq":5,"exitCode":3}}`,
			}
		case "process/read": // of which nothing is left
			return []string{fmt.Sprintf(`{"id":%d,"result":{"chunks":[],"nextSeq":7,"exited":true,"exitCode":3,"closed":true,"failure":null}}`, id)}
		}
		return nil
	})
	conn := dial(t, "", func(o *Options) {
		o.Open = func(context.Context) (jsonrpc.Transport, error) {
			return &older{server}, nil
		}
	})
	var said strings.Builder
	o := &owner{t: t, conn: conn, start: script("p", "echo"), stdout: &said}
	if err := o.run(); err != nil || said.String() != "1234" || o.exit.GetExitCode() != 3 || o.gaps > 0 {
		t.Errorf("got %q, %v, %d gaps, %v", &said, o.exit, o.gaps, err)
	}
}

// older is a scripted server that says less of itself.
type older struct{ *scripted }

func (o *older) Receive() ([]byte, error) {
	message, err := o.scripted.Receive()
	if strings.Contains(string(message), "protocolVersion") {
		message = []byte(`{"id":1,"result":{"sessionId":"s","environmentInfo":{}}}`)
	}
	return message, err
}

// TestReadResult_LostEvents_BecomeAGap has servers that retain less than was missed.
func TestReadResult_LostEvents_BecomeAGap(t *testing.T) {
	chunk := func(seq uint64) wireChunk {
		return wireChunk{Seq: seq, Stream: "stdout", Chunk: jsonrpc.Base64("x")}
	}
	code := new(int64)
	for name, test := range map[string]struct {
		results     []readResult
		after       uint64
		exitIsFirst bool
		want        string
	}{
		"all":                  {results: []readResult{{Chunks: []wireChunk{chunk(1)}, NextSeq: 2}, {NextSeq: 2}}, want: "1 output"},
		"a beginning":          {results: []readResult{{Chunks: []wireChunk{chunk(9)}, NextSeq: 10}}, after: 2, want: "gap, 2 output"},
		"an exit":              {results: []readResult{{NextSeq: 2, Exited: true, ExitCode: code}}, want: "1 exited"},
		"an exit and a close":  {results: []readResult{{NextSeq: 3, Exited: true, Closed: true, ExitCode: code}}, want: "1 exited, 2 closed"},
		"an exit before all":   {results: []readResult{{Chunks: []wireChunk{chunk(4)}, NextSeq: 5, Exited: true, ExitCode: code}, {NextSeq: 5, Exited: true, ExitCode: code}}, after: 2, exitIsFirst: true, want: "1 exited, 2 output"},
		"an exit that is gone": {results: []readResult{{Chunks: []wireChunk{chunk(9)}, NextSeq: 10, Exited: true, ExitCode: code}, {NextSeq: 10, Exited: true, ExitCode: code}}, after: 2, want: "gap, 2 output, 3 exited"},
		"an exit behind a gap": {results: []readResult{{Chunks: []wireChunk{chunk(7), chunk(9)}, NextSeq: 10, Exited: true, ExitCode: code}}, after: 2, want: "gap, 2 output, 3 exited, 4 output"},
		"all but the end":      {results: []readResult{{NextSeq: 9, Exited: true, Closed: true, ExitCode: code}}, after: 2, want: "gap, 2 exited, 3 closed"},
		"nothing":              {results: []readResult{{NextSeq: 3}}, after: 2},
	} {
		p := &process{conn: &Conn{}, id: "p"}
		p.incoming.received = test.after
		for _, r := range test.results {
			if err := p.addRead(&r, p.incoming.received, 0, test.exitIsFirst); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		var got []string
		for _, event := range p.log.next(new(uint64)) {
			if got = append(got, kindOf(event)); event.GetGap() == nil {
				got[len(got)-1] = fmt.Sprint(event.GetSeq(), " ", kindOf(event))
			}
		}
		if strings.Join(got, ", ") != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestReadResult_SmallChunks_AreKept has an answer of a process that wrote a few bytes at
// a time: its events cost far more than their output, and the owner has seen none yet.
func TestReadResult_SmallChunks_AreKept(t *testing.T) {
	const chunks = readBytes / 8
	result := readResult{NextSeq: chunks + 1}
	for seq := range uint64(chunks) {
		result.Chunks = append(result.Chunks, wireChunk{Seq: seq + 1, Stream: "stdout", Chunk: jsonrpc.Base64("12345678")})
	}
	p := &process{conn: &Conn{}, id: "p"}
	if err := p.addRead(&result, 0, 0, false); err != nil {
		t.Fatal(err)
	}
	got := 0
	for at := uint64(0); at < p.log.last; {
		for _, event := range p.log.next(&at) {
			got += len(event.GetOutput().GetData())
			if event.GetGap() != nil {
				t.Fatalf("a gap: %v", event)
			}
		}
	}
	if got != readBytes {
		t.Errorf("%d bytes of %d", got, readBytes)
	}
}

// TestConn_OnceLostAfterTheHandshake_IsNotOpenedAgain has a command that exits as soon as
// it has answered.
func TestConn_OnceLostAfterTheHandshake_IsNotOpenedAgain(t *testing.T) {
	var opened atomic.Int32
	conn := dial(t, "", func(o *Options) {
		o.Once = true
		o.Open = func(context.Context) (jsonrpc.Transport, error) {
			opened.Add(1)
			return &brief{newScripted(nil)}, nil
		}
	})
	<-conn.ctx.Done()
	if n := opened.Load(); n != 1 {
		t.Errorf("it was opened %d times", n)
	}
}

// brief is a scripted server that ends after its first message.
type brief struct{ *scripted }

func (b *brief) Receive() ([]byte, error) {
	message, err := b.scripted.Receive()
	_ = b.Close(0, "")
	return message, err
}

func (b *brief) Send(message []byte) error {
	if bytes.Contains(message, []byte(`"initialize"`)) {
		return b.scripted.Send(message)
	}
	return nil
}

// TestNotify_LinkLostWhilePaused_EvictsNothing has an owner that is slow to take what was
// read after a lost link, when the next link is lost too.
func TestNotify_LinkLostWhilePaused_EvictsNothing(t *testing.T) {
	const chunks = readBytes / 8
	result := readResult{NextSeq: chunks + 1}
	for seq := range uint64(chunks) {
		result.Chunks = append(result.Chunks, wireChunk{Seq: seq + 1, Stream: "stdout", Chunk: jsonrpc.Base64("12345678")})
	}
	c := &Conn{}
	p := c.processes.add(&process{conn: c, id: "p"})
	if err := p.addRead(&result, 0, 0, false); err != nil {
		t.Fatal(err)
	}
	l := &link{conn: c}
	l.over, l.end = context.WithCancelCause(t.Context())
	l.end(io.ErrUnexpectedEOF)
	params := fmt.Sprintf(`{"processId":"p","seq":%d,"stream":"stdout","chunk":"MQ=="}`, chunks+1)
	if err := c.notify(l, "process/output", []byte(params)); err != nil || p.log.evicted > 0 {
		t.Errorf("%d events of %d were evicted, %v", p.log.evicted, p.log.last, err)
	}
}
