package execserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
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
		s.said <- fmt.Sprintf(`{"id":%d,"result":{"sessionId":"s","protocolVersion":"exec-server.v0","environmentInfo":{},"acknowledgements":{"windowBytes":1000,"windowEvents":10}}}`, sent.ID)
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

// TestAServerThatBreaksTheProtocolIsLeft has a run going on, of which the server says
// something that it must not say.
func TestAServerThatBreaksTheProtocolIsLeft(t *testing.T) {
	output := func(seq int) string {
		return fmt.Sprintf(`{"method":"process/output","params":{"processId":"p","seq":%d,"stream":"stdout","chunk":"aGkK"}}`, seq)
	}
	flood := make([]string, 0, 50)
	for seq := range 50 {
		flood = append(flood, strings.Replace(output(seq+1), "aGkK", strings.Repeat("aGkK", 500), 1))
	}
	for name, says := range map[string][]string{
		"an id that no request had":      {`{"id":77,"result":{}}`},
		"an id that is a text":           {`{"id":"a","result":{}}`},
		"an answer for the second time":  {`{"id":1,"result":{}}`},
		"no JSON":                        {`no`},
		"a message that is too large":    {`too large`},
		"a hole in the seqs":             {output(1), output(3)},
		"an unknown stream":              {`{"method":"process/output","params":{"processId":"p","seq":1,"stream":"x","chunk":"aGkK"}}`},
		"output that is no base64":       {`{"method":"process/output","params":{"processId":"p","seq":1,"stream":"stdout","chunk":"*"}}`},
		"the seq 0":                      {output(0)},
		"an exit without a code":         {`{"method":"process/exited","params":{"processId":"p","seq":1}}`},
		"more than the window has place": flood,
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
			if name == "more than the window has place" {
				<-conn.Done() // nothing is taken meanwhile
			}
			for err == nil {
				_, err = stream.Recv()
			}
			<-conn.Done()
			var lost *LostError
			var broken *ProtocolError
			if !errors.As(conn.Err(), &lost) || !errors.As(conn.Err(), &broken) {
				t.Errorf("the connection is gone because of %v", conn.Err())
			}
			_, err = execwirev1.NewProcessServiceClient(conn).StartProcess(t.Context(), script("q", "true"))
			if !errors.As(err, &broken) {
				t.Errorf("a later call failed with %v", err)
			}
		})
	}
}

// TestAnExitBeforeTheOutputIsPutInOrder is what servers of the reference send.
func TestAnExitBeforeTheOutputIsPutInOrder(t *testing.T) {
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

// TestOutputThatOvertakesOtherOutputIsPutInOrder is what servers of the reference send
// of two streams. What is only late is not read: they keep little, and it could be gone.
func TestOutputThatOvertakesOtherOutputIsPutInOrder(t *testing.T) {
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

func TestWhatWasLostIsToldWhereTheServerKeptLess(t *testing.T) {
	p := newProcess(&Conn{}, "p")
	data := jsonrpc.Base64("x")
	for name, test := range map[string]struct {
		result readResult
		after  uint64
		want   string
	}{
		"all":                  {readResult{Chunks: []wireChunk{{Seq: 1, Stream: "stdout", Chunk: data}}, NextSeq: 2}, 0, "output 1"},
		"a beginning":          {readResult{Chunks: []wireChunk{{Seq: 9, Stream: "stdout", Chunk: data}}, NextSeq: 10}, 2, "gap to 9, output 9"},
		"an exit":              {readResult{NextSeq: 2, Exited: true, ExitCode: new(int64)}, 0, "exit 1"},
		"an exit and a close":  {readResult{NextSeq: 3, Exited: true, Closed: true, ExitCode: new(int64)}, 0, "exit 1, close 2"},
		"an exit that is gone": {readResult{Chunks: []wireChunk{{Seq: 9, Stream: "stdout", Chunk: data}}, NextSeq: 10, Exited: true, ExitCode: new(int64)}, 2, "gap to 8, exit 8, output 9"},
		"an exit behind a gap": {readResult{Chunks: []wireChunk{{Seq: 7, Stream: "stdout", Chunk: data}, {Seq: 9, Stream: "stdout", Chunk: data}}, NextSeq: 10, Exited: true, ExitCode: new(int64)}, 2, "gap to 7, output 7, exit 8, output 9"},
		"nothing":              {readResult{NextSeq: 3}, 2, ""},
	} {
		r, err := p.interpret(&test.result, test.after, false)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []string
		for _, event := range r.events {
			switch {
			case event.GetGap() != nil:
				got = append(got, fmt.Sprint("gap to ", event.GetGap().GetFirstAvailableSeq()))
			case event.GetOutput() != nil:
				got = append(got, fmt.Sprint("output ", event.GetSeq()))
			case event.GetExited() != nil:
				got = append(got, fmt.Sprint("exit ", event.GetSeq()))
			default:
				got = append(got, fmt.Sprint("close ", event.GetSeq()))
			}
		}
		if strings.Join(got, ", ") != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
