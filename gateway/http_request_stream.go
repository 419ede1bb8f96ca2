package gateway

import (
	"context"
	"io"
	"strconv"

	"google.golang.org/grpc/status"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// httpStream is the result of http/request whose body follows as notifications,
// which the core is asked for as fast as the client reads.
type httpStream struct {
	response   *httpResponse
	connection *connection
	ctx        context.Context // of the request
	id         []byte          // of it, as JSON
	seq        uint64          // of the last notification
}

func (s *httpStream) appendTo(dst []byte) []byte {
	return append(appendHTTPHead(dst, s.response.head), `""}`...)
}

func (s *httpStream) wasSaid() {
	s.response.head = nil // which was said, and need not wait for the body
	s.connection.spawn(s.sayBody)
}

// sayBody says what comes, and how it ended unless the connection does.
func (s *httpStream) sayBody() {
	defer s.response.place.leave()
	for {
		message, err := s.response.stream.Recv()
		if s.ctx.Err() != nil || !s.say(message, err) || err != nil {
			return
		}
	}
}

// say says one notification, after which the id of the last one may be used again.
// It blocks while the client does not read, and reports whether it could be said.
func (s *httpStream) say(message *execwirev1.FetchResponse, failed error) bool {
	said := false
	err := s.connection.out.say(func(dst []byte) ([]byte, bool) {
		if said {
			return nil, false
		}
		said = true
		if failed != nil {
			s.response.place.leave()
		}
		s.seq++
		return s.appendDelta(dst, message.GetData(), failed), true
	})
	if err != nil {
		s.connection.end(ending{closeInternal, "a notification could not be sent", err})
	}
	return err == nil
}

func (s *httpStream) appendDelta(dst, data []byte, failed error) []byte {
	dst = append(dst, `{"method":"http/request/bodyDelta","params":{"requestId":`...)
	dst = append(dst, s.id...)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendUint(dst, s.seq, 10)
	dst = append(dst, `,"deltaBase64":`...)
	dst = jsonrpc.AppendBase64(dst, data)
	dst = append(dst, `,"done":`...)
	dst = strconv.AppendBool(dst, failed != nil)
	dst = append(dst, `,"error":`...)
	if failed == nil || failed == io.EOF {
		dst = append(dst, `null`...)
	} else {
		dst = jsonrpc.AppendString(dst, bodyError(failed))
	}
	return append(dst, `}}`...)
}

// bodyError is what clients know of a body that did not come to its end.
func bodyError(err error) string {
	switch reasonOf(err) {
	case execwirev1.ErrorReason_ERROR_REASON_HTTP_BODY_FAILED, execwirev1.ErrorReason_ERROR_REASON_HTTP_TIMED_OUT:
		return "error decoding response body"
	}
	return status.Convert(err).Message()
}
