// Command connectserver is the server under test of Connect's conformance runner: it serves
// connectrpc.conformance.v1.ConformanceService by the handler and the HTTP server of the
// daemon. make test-conformance runs it.
package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect/v2"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/execwire/execwire/gateway/connectrpc"
	"github.com/execwire/execwire/gateway/wsserver"
	"github.com/execwire/execwire/internal/inproc"
)

// conformance is the package of the runner's contract.
const conformance protoreflect.FullName = "connectrpc.conformance.v1"

// handshakeTimeout is how long a client may take for the header of a request.
const handshakeTimeout = 10 * time.Second

// usage of the only argument.
const usage = "usage: connectserver DESCRIPTORS, a file with the descriptors of connectrpc.conformance.v1, and the runner's request on stdin"

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "connectserver:", err)
		os.Exit(1)
	}
}

// run serves one request of the runner, until it kills this program.
func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("%s", usage)
	}
	if err := register(args[0]); err != nil {
		return err
	}
	request := newMessage("ServerCompatRequest")
	if err := receive(in, request); err != nil {
		return fmt.Errorf("failed to read the runner's request: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	channel := inproc.New()
	defer channel.Close()
	channel.RegisterService(serviceDesc(), nil)
	handler := connectrpc.New(connectrpc.Config{
		Packages:     []protoreflect.FullName{conformance},
		MessageBytes: int(field(request, "message_receive_limit").Uint()),
		Begin: func(r *http.Request, _ string) (connectrpc.Call, error) {
			return connectrpc.Call{Context: metadata.NewOutgoingContext(r.Context(), metadataOf(r.Header)), Conn: channel}, nil
		},
	})
	server := wsserver.NewHTTPServer(wsserver.NewHandler(wsserver.HTTPConfig{
		Mounts: map[string]http.Handler{"/" + string(conformance) + ".": handler},
	}), handshakeTimeout, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	response := newMessage("ServerCompatResponse")
	address := listener.Addr().(*net.TCPAddr)
	set(response, "host", protoreflect.ValueOfString(address.IP.String()))
	set(response, "port", protoreflect.ValueOfUint32(uint32(address.Port)))
	if err := send(out, response); err != nil {
		return err
	}
	return server.Serve(listener)
}

// register makes the types of a file of descriptors known to package protoregistry.
func register(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(content, &set); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	files.RangeFilesByPackage(conformance, func(file protoreflect.FileDescriptor) bool {
		if err = protoregistry.GlobalFiles.RegisterFile(file); err == nil {
			err = registerMessages(file.Messages())
		}
		return err == nil
	})
	return err
}

func registerMessages(messages protoreflect.MessageDescriptors) error {
	for i := range messages.Len() {
		if err := protoregistry.GlobalTypes.RegisterMessage(dynamicpb.NewMessageType(messages.Get(i))); err != nil {
			return err
		}
		if err := registerMessages(messages.Get(i).Messages()); err != nil {
			return err
		}
	}
	return nil
}

// newMessage returns a message of the runner's contract.
func newMessage(name protoreflect.FullName) protoreflect.Message {
	found, err := protoregistry.GlobalTypes.FindMessageByName(conformance + "." + name)
	if err != nil {
		panic(err)
	}
	return found.New()
}

func field(m protoreflect.Message, name protoreflect.Name) protoreflect.Value {
	return m.Get(m.Descriptor().Fields().ByName(name))
}

func has(m protoreflect.Message, name protoreflect.Name) bool {
	descriptor := m.Descriptor().Fields().ByName(name)
	return descriptor != nil && m.Has(descriptor)
}

func set(m protoreflect.Message, name protoreflect.Name, value protoreflect.Value) {
	m.Set(m.Descriptor().Fields().ByName(name), value)
}

func list(m protoreflect.Message, name protoreflect.Name) protoreflect.List {
	return m.Mutable(m.Descriptor().Fields().ByName(name)).List()
}

// receive reads a message with its length in front, as the runner sends it.
func receive(in io.Reader, into protoreflect.Message) error {
	var size uint32
	if err := binary.Read(in, binary.BigEndian, &size); err != nil {
		return err
	}
	encoded := make([]byte, size)
	if _, err := io.ReadFull(in, encoded); err != nil {
		return err
	}
	return proto.Unmarshal(encoded, into.Interface())
}

func send(out io.Writer, m protoreflect.Message) error {
	encoded, err := proto.Marshal(m.Interface())
	if err != nil {
		return err
	}
	_, err = out.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(encoded))), encoded...))
	return err
}

// metadataOf returns headers as metadata. Those of the transport do not matter here.
func metadataOf(header http.Header) metadata.MD {
	md := make(metadata.MD)
	for key, values := range header {
		for _, value := range values {
			md.Append(key, decoded(key, value))
		}
	}
	return md
}

// decoded returns the value of a header as metadata have it.
func decoded(key, value string) string {
	if strings.HasSuffix(strings.ToLower(key), "-bin") {
		if binary, err := connect.DecodeBinaryHeader(value); err == nil {
			return string(binary)
		}
	}
	return value
}

// encoded returns a value of metadata as a header has it.
func encoded(key, value string) string {
	if strings.HasSuffix(key, "-bin") {
		return connect.EncodeBinaryHeader([]byte(value))
	}
	return value
}
