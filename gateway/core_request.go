package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/execwire/execwire/gateway/jsonrpc"
	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// coreMethod is a method of the core that clients may call in the words of its
// contract.
type coreMethod struct {
	name     string // of gRPC
	in, out  protoreflect.MessageType
	sends    bool // it takes a stream of messages
	receives bool // it answers with one
	// changes is whether it changes what is at the paths of its request.
	changes bool
	// waits is whether its messages tell of what happens, which may be never.
	waits bool
}

// Names of methods of the core by which something is decided.
const (
	coreFetch    = "HttpService/Fetch"
	coreReadFile = "FileSystemService/ReadFile"
	// As gRPC has them.
	coreDownload  = "/execwire.v1.FileSystemService/DownloadFile"
	coreFetchName = "/execwire.v1.HttpService/Fetch"
)

// coreMethods are the methods of the core that clients may call, by service and
// name: those about files, all of them, and what has a method in the protocol.
// Sessions and processes are not among them: those of a connection are its own.
var coreMethods = func() map[string]coreMethod {
	known := make(map[string]coreMethod)
	for _, file := range []protoreflect.FileDescriptor{
		execwirev1.File_execwire_v1_filesystem_proto, execwirev1.File_execwire_v1_environment_proto, execwirev1.File_execwire_v1_http_proto,
	} {
		addCoreMethods(known, file.Services().Get(0))
	}
	return known
}()

func addCoreMethods(known map[string]coreMethod, service protoreflect.ServiceDescriptor) {
	changing := []string{"WriteFile", "UploadFile", "CreateDirectory", "RemovePath", "CopyPath", "RenamePath", "CreateSymlink"}
	waiting := []string{"WatchDirectory", "AwaitPaths", "Fetch"}
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		known[string(service.Name())+"/"+string(m.Name())] = coreMethod{
			name: "/" + string(service.FullName()) + "/" + string(m.Name()),
			in:   messageType(m.Input()), out: messageType(m.Output()),
			sends: m.IsStreamingClient(), receives: m.IsStreamingServer(),
			changes: slices.Contains(changing, string(m.Name())), waits: slices.Contains(waiting, string(m.Name())),
		}
	}
}

// messageType is the generated type of a message. That there is none is a mistake in
// the build.
func messageType(d protoreflect.MessageDescriptor) protoreflect.MessageType {
	found, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err)
	}
	return found
}

// watches is whether the method is a watch, of which a connection may have some.
func (m *coreMethod) watches() bool { return m.waits && m.name != coreFetchName }

// streams is whether the method is one of core/stream.
func (m *coreMethod) streams() bool { return m.sends || m.receives }

// description is the method as gRPC opens streams of it.
func (m *coreMethod) description() *grpc.StreamDesc {
	return &grpc.StreamDesc{StreamName: path.Base(m.name), ClientStreams: m.sends, ServerStreams: m.receives}
}

// findCoreMethod returns the method that a client names, for the one of ours that it
// is called with.
func findCoreMethod(name string, streams bool) (*coreMethod, *jsonrpc.Error) {
	known, ok := coreMethods[name]
	switch {
	case !ok:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "clients cannot call `" + shorten(name) + "` of the core",
			Data: map[string]string{"reason": "NOT_IMPLEMENTED"}}
	case known.streams() && !streams:
		return nil, invalidMember("method", "has a stream of messages: use core/stream")
	case !known.streams() && streams:
		return nil, invalidMember("method", "has one request and one response: use core/call")
	}
	return &known, nil
}

// maxCoreParts is how many messages may be in a message: each takes many times the
// memory of the two bytes that it is written with. That is more than any list of the
// contract has.
const maxCoreParts = 1 << 16

// messageFits refuses a message that the core would not take over a wire.
func (c *connection) messageFits(m proto.Message) *jsonrpc.Error {
	limit := c.environment.native.GetLimits().GetMessageBytes()
	if limit == 0 || uint64(proto.Size(m)) <= limit {
		return nil
	}
	return messageTooLarge(int(limit), "bytes are in the message")
}

// parseCoreMessage reads a message in the JSON form of protobuf; nothing is the empty
// one. What is not known of it could matter, and is refused.
func parseCoreMessage(field string, raw json.RawMessage, of protoreflect.MessageType) (proto.Message, *jsonrpc.Error) {
	message := of.New().Interface()
	switch {
	case len(raw) == 0:
		return message, nil
	case bytes.Count(raw, []byte{'{'}) > maxCoreParts:
		return nil, invalidMember(field, fmt.Sprintf("has more than %d messages in it", maxCoreParts))
	}
	if err := protojson.Unmarshal(raw, message); err != nil {
		// The text begins with spaces that are random.
		_, problem, _ := strings.Cut(err.Error(), "proto:")
		return nil, invalidMember(field, "is no "+string(of.Descriptor().Name())+": "+shorten(strings.TrimSpace(strings.ReplaceAll(problem, "\u00a0", " "))))
	}
	return message, nil
}

// coreMessage is a message of the core in the JSON form of protobuf. It is written
// as a part of an answer.
type coreMessage struct{ proto.Message }

// MarshalJSON implements json.Marshaler.
func (m coreMessage) MarshalJSON() ([]byte, error) { return protojson.Marshal(m.Message) }

// dataOfMessage is the data of a message that is nothing else, nil for all others.
func dataOfMessage(m proto.Message) []byte {
	switch m := m.(type) {
	case *execwirev1.DownloadFileResponse:
		return m.GetData()
	case *execwirev1.FetchResponse:
		return m.GetData()
	}
	return nil
}

// pathsOf are the paths of a request of the core, for the order of requests on the
// same files, absolute and clean.
func pathsOf(m protoreflect.Message) (paths []string) {
	if upload, ok := m.Interface().(*execwirev1.UploadFileRequest); ok {
		return pathsOf(upload.GetHead().ProtoReflect())
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if name := string(field.Name()); name != "path" && !strings.HasSuffix(name, "_path") || field.IsList() {
			return true
		}
		switch field.Kind() {
		case protoreflect.StringKind:
			paths = append(paths, path.Clean(value.String()))
		case protoreflect.BytesKind:
			paths = append(paths, path.Clean(string(value.Bytes())))
		}
		return true
	})
	return paths
}
