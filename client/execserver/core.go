package execserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/execwire/execwire/gateway/jsonrpc"
)

// coreMethod is a method of the contract as core/call and core/stream name it, and
// its messages.
type coreMethod struct {
	name    string
	in, out protoreflect.MessageType
}

// coreServices are the services whose methods servers of ours can be asked in the
// words of the contract.
var coreServices = []string{"FileSystemService", "EnvironmentService", "HttpService"}

// findCoreMethod finds a method by its full name; not ok is one that has to be
// translated.
func findCoreMethod(full string) (found coreMethod, ok bool) {
	service, name, _ := strings.Cut(strings.TrimPrefix(full, "/execwire.v1."), "/")
	for _, known := range coreServices {
		if service != known {
			continue
		}
		described, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName("execwire.v1." + service + "." + name))
		if err != nil {
			return coreMethod{}, false
		}
		method, isMethod := described.(protoreflect.MethodDescriptor)
		if !isMethod {
			return coreMethod{}, false
		}
		in, inErr := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
		out, outErr := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
		return coreMethod{name: service + "/" + name, in: in, out: out}, inErr == nil && outErr == nil
	}
	return coreMethod{}, false
}

// coreLink returns the link to a server that can be asked in the words of the
// contract, nil if it cannot.
func (c *Conn) coreLink(ctx context.Context) (*link, error) {
	l, err := c.current(ctx)
	if err != nil || !l.peer.coreRequests {
		return nil, err
	}
	return l, nil
}

// interceptCall makes calls of the services above as they are, where the server
// takes them so. All others are translated by their services here.
func (c *Conn) interceptCall(ctx context.Context, request any, info *grpc.UnaryServerInfo, translate grpc.UnaryHandler) (any, error) {
	method, ok := findCoreMethod(info.FullMethod)
	if !ok {
		return translate(ctx, request)
	}
	l, err := c.coreLink(ctx)
	switch {
	case err != nil:
		return nil, err
	case l == nil:
		return translate(ctx, request)
	}
	message, _ := request.(proto.Message)
	response := method.out.New().Interface()
	return response, c.coreCall(ctx, l, method.name, message, response)
}

type coreCallParams struct {
	Method  string          `json:"method"`
	Request json.RawMessage `json:"request"`
}

type coreCallResult struct {
	Response json.RawMessage `param:"response"`
}

func (c *Conn) coreCall(ctx context.Context, l *link, method string, request, response proto.Message) error {
	text, err := protojson.Marshal(request)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	var result coreCallResult
	if err := c.callOn(ctx, l, c.places, "core/call", coreCallParams{method, text}, &result); err != nil {
		return err
	}
	if err := fromJSON.Unmarshal(result.Response, response); err != nil {
		return c.broken(l, protocolErrorf("the response of %s cannot be understood: %v", method, err))
	}
	return nil
}

// fromJSON reads messages of servers, which may be newer.
var fromJSON = protojson.UnmarshalOptions{DiscardUnknown: true}

// errStreamGone is the status of a stream that the server does not have any more.
var errStreamGone = status.Error(codes.Unavailable, "the server does not have the stream any more")

// coreStatus is statusOf for requests about a stream.
func (c *Conn) coreStatus(method string, err error) error {
	var answered *jsonrpc.Error
	if errors.As(err, &answered) {
		if raw, ok := answered.Data.(json.RawMessage); ok && bytes.Contains(raw, []byte(`"STREAM_NOT_FOUND"`)) {
			return errStreamGone
		}
	}
	return c.statusOf(method, err)
}
