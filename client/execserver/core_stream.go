package execserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

const (
	// askedAhead is how many answers with parts of a file are asked for before they
	// are needed, each of at most a quarter of a MiB and base64 around it, and how
	// many pieces of an upload are under way.
	askedAhead = 4
	// pieceBytes is a piece of an upload, in bytes.
	pieceBytes = 256 << 10
)

// coreStream is a stream of the server's core. It is for one goroutine, and ends
// with the link it was opened over.
type coreStream struct {
	conn   *Conn
	link   *link
	ctx    context.Context
	id     string
	method coreMethod
	// asked are the requests whose answers were not taken, in their order.
	asked []chan streamAnswer
	ended bool // the server has forgotten it
}

// streamAnswer is the answer to a request about a stream.
type streamAnswer struct {
	method string
	result []byte
	err    error
}

// interceptStream is interceptCall for streams.
func (c *Conn) interceptStream(service any, stream grpc.ServerStream, info *grpc.StreamServerInfo, translate grpc.StreamHandler) error {
	method, ok := findCoreMethod(info.FullMethod)
	if !ok {
		return translate(service, stream)
	}
	l, err := c.coreLink(stream.Context())
	switch {
	case err != nil:
		return err
	case l == nil:
		return translate(service, stream)
	}
	s := &coreStream{conn: c, link: l, ctx: stream.Context(), id: rand.Text(), method: method}
	defer s.end()
	if info.IsClientStream {
		return s.upload(stream)
	}
	return s.relay(stream)
}

type coreStreamParams struct {
	StreamID string          `json:"streamId"`
	Method   string          `json:"method"`
	Request  json.RawMessage `json:"request"`
}

type coreStreamID struct {
	StreamID string `json:"streamId"`
}

type coreSendParams struct {
	StreamID string          `json:"streamId"`
	Data     []byte          `json:"data,omitempty"`
	Message  json.RawMessage `json:"message,omitempty"`
}

type coreReceived struct {
	Responses []json.RawMessage `param:"responses"`
	Ended     bool              `param:"ended"`
}

// open asks for the stream with its first message. Who receives learns whether that
// could be done.
func (s *coreStream) open(first proto.Message) error {
	text, err := protojson.Marshal(first)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return s.ask("core/stream", coreStreamParams{s.id, s.method.name, text})
}

// ask makes a request about the stream; requests are carried out in their order.
func (s *coreStream) ask(method string, params any) error {
	done := make(chan streamAnswer, 1)
	err := s.link.request(s.ctx, func(dst []byte, id jsonrpc.ID) []byte {
		return appendTrace(s.ctx, jsonrpc.AppendRequest(dst, id, method, params))
	}, func(result []byte, err error) {
		done <- streamAnswer{method, bytes.Clone(result), err}
	})
	if err != nil {
		return err
	}
	s.asked = append(s.asked, done)
	return nil
}

// answer waits for the answer that comes next.
func (s *coreStream) answer() (streamAnswer, error) {
	next := s.asked[0]
	s.asked = s.asked[1:]
	select {
	case a := <-next:
		if a.err != nil {
			return a, s.conn.coreStatus(a.method, a.err)
		}
		return a, nil
	case <-s.ctx.Done():
		return streamAnswer{}, contextStatus(s.ctx)
	}
}

// end has the server forget the stream unless it has.
func (s *coreStream) end() {
	if s.ended {
		return
	}
	// It is said at once; nobody waits for the answer, and a link that is lost has no
	// stream either.
	_ = s.link.post(func(dst []byte, id jsonrpc.ID) []byte {
		return jsonrpc.AppendRequest(dst, id, "core/cancel", coreStreamID{s.id})
	}, func([]byte, error) {})
}

// relay asks once and passes on what the server says. Of what tells of things that
// happen, no more is asked for than is taken.
func (s *coreStream) relay(to grpc.ServerStream) error {
	request, err := s.receiveRequest(to)
	if err != nil {
		return err
	}
	if err := s.open(request); err != nil {
		return err
	}
	ahead := 1
	if _, isFile := request.(*execwirev1.DownloadFileRequest); isFile {
		ahead = askedAhead
	}
	for range ahead {
		if err := s.ask("core/receive", coreStreamID{s.id}); err != nil {
			return err
		}
	}
	if _, err := s.answer(); err != nil {
		s.ended = true // it never began
		return err
	}
	for {
		received, err := s.receive()
		if err != nil {
			return err
		}
		for _, raw := range received.Responses {
			message, err := s.decode(raw)
			if err != nil {
				return err
			}
			if err := to.SendMsg(message); err != nil {
				return err
			}
		}
		if received.Ended {
			return nil
		}
		if err := s.ask("core/receive", coreStreamID{s.id}); err != nil {
			return err
		}
	}
}

// receiveRequest takes the one request of a stream of responses.
func (s *coreStream) receiveRequest(from grpc.ServerStream) (proto.Message, error) {
	request := s.method.in.New().Interface()
	return request, from.RecvMsg(request)
}

// receive waits for the next messages.
func (s *coreStream) receive() (coreReceived, error) {
	var received coreReceived
	a, err := s.answer()
	if err != nil {
		if _, ok := a.err.(*jsonrpc.Error); ok {
			s.ended = true // an error ends it
		}
		return received, err
	}
	if err := jsonrpc.DecodeParams(a.result, &received); err != nil {
		return received, s.conn.broken(s.link, protocolErrorf("the messages of %s cannot be understood: %v", s.method.name, err))
	}
	s.ended = received.Ended
	return received, nil
}

// decode reads a message. One that is data alone is read without detours.
func (s *coreStream) decode(raw json.RawMessage) (proto.Message, error) {
	message := s.method.out.New().Interface()
	if data, ok := onlyData(raw); ok {
		switch m := message.(type) {
		case *execwirev1.DownloadFileResponse:
			m.Message = &execwirev1.DownloadFileResponse_Data{Data: data}
			return m, nil
		case *execwirev1.FetchResponse:
			m.Message = &execwirev1.FetchResponse_Data{Data: data}
			return m, nil
		}
	}
	if err := fromJSON.Unmarshal(raw, message); err != nil {
		return nil, s.conn.broken(s.link, protocolErrorf("a message of %s cannot be understood: %v", s.method.name, err))
	}
	return message, nil
}

// onlyData reads {"data":"…"} as servers of ours write it.
func onlyData(raw []byte) ([]byte, bool) {
	text, ok := bytes.CutPrefix(raw, []byte(`{"data":"`))
	if !ok {
		return nil, false
	}
	if text, ok = bytes.CutSuffix(text, []byte(`"}`)); !ok {
		return nil, false
	}
	data, err := base64.StdEncoding.AppendDecode(make([]byte, 0, base64.StdEncoding.DecodedLen(len(text))), text)
	return data, err == nil
}

// upload sends what comes in larger pieces, and then asks for the answer.
func (s *coreStream) upload(from grpc.ServerStream) error {
	first, err := s.receiveRequest(from)
	switch {
	case errors.Is(err, io.EOF):
		first = &execwirev1.UploadFileRequest{} // which the server knows what to say to
	case err != nil:
		return err
	}
	if err := s.open(first); err != nil {
		return err
	}
	for err == nil {
		if err = s.sendNext(from); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	if err := s.ask("core/receive", coreStreamID{s.id}); err != nil {
		return err
	}
	for len(s.asked) > 1 {
		if _, err := s.answer(); err != nil {
			return err
		}
	}
	received, err := s.receive()
	if err != nil {
		return err
	}
	if len(received.Responses) != 1 {
		return s.conn.broken(s.link, protocolErrorf("%s has %d responses", s.method.name, len(received.Responses)))
	}
	response, err := s.decode(received.Responses[0])
	if err != nil {
		return err
	}
	return from.SendMsg(response)
}

// sendNext gathers data up to a piece, or up to another message, and sends it. The
// error is io.EOF when there is nothing more.
func (s *coreStream) sendNext(from grpc.ServerStream) error {
	var piece []byte
	for {
		var message execwirev1.UploadFileRequest
		err := from.RecvMsg(&message)
		_, isData := message.GetMessage().(*execwirev1.UploadFileRequest_Data)
		if err == nil && isData {
			piece = append(piece, message.GetData()...)
			if len(piece) < pieceBytes {
				continue
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(piece) > 0 {
			if err := s.send(coreSendParams{StreamID: s.id, Data: piece}); err != nil {
				return err
			}
		}
		if err != nil || isData {
			return err
		}
		text, err := protojson.Marshal(&message)
		if err != nil {
			return status.Error(codes.Internal, err.Error())
		}
		return s.send(coreSendParams{StreamID: s.id, Message: text})
	}
}

// send sends a piece when few enough are under way, or returns why none is wanted
// any more.
func (s *coreStream) send(params coreSendParams) error {
	for len(s.asked) >= askedAhead {
		if _, err := s.answer(); err != nil {
			return err
		}
	}
	return s.ask("core/send", params)
}
