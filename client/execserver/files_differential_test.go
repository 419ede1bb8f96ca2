package execserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// rootMark stands for the directory of a side in the requests and answers of a test.
const rootMark = "/@root"

// fileCall is a call on files: a method, and its request, or requests.
type fileCall struct {
	method   string
	requests []proto.Message
}

func (c fileCall) String() string { return fmt.Sprintf("%s %.1000v", c.method, c.requests) }

// outcome is what a call came to, with rootMark for the directory of its side.
type outcome struct {
	responses []proto.Message
	err       *status.Status
}

// side is one of two ways to the same core, with a directory of its own.
type side struct {
	conn grpc.ClientConnInterface
	dir  string
	name string // as long as sideMark
}

// sideMark stands for the name of a side, in what belongs to the principal.
const sideMark = "@side--"

// do makes a call.
func (s side) do(ctx context.Context, call fileCall) (o outcome) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	method, ok := findCoreMethod("/execwire.v1.FileSystemService/" + call.method)
	if !ok {
		panic(call.method)
	}
	defer func() {
		for _, m := range o.responses {
			forget(m.ProtoReflect())
			replace(m.ProtoReflect(), s.dir, rootMark)
			replace(m.ProtoReflect(), s.name, sideMark)
		}
		said := o.err.Proto()
		for _, detail := range said.GetDetails() {
			detail.Value = bytes.ReplaceAll(detail.Value, []byte(s.name), []byte(sideMark))
			detail.Value = bytes.ReplaceAll(detail.Value, []byte(s.dir), []byte(rootMark+strings.Repeat("-", len(s.dir)-len(rootMark))))
		}
		if said != nil {
			said.Message = strings.NewReplacer(s.dir, rootMark, s.name, sideMark).Replace(said.Message)
		}
		o.err = status.FromProto(said)
	}()
	requests := make([]proto.Message, len(call.requests))
	for i, request := range call.requests {
		requests[i] = proto.Clone(request)
		replace(requests[i].ProtoReflect(), rootMark, s.dir)
		replace(requests[i].ProtoReflect(), sideMark, s.name)
	}
	full := "/execwire.v1.FileSystemService/" + call.method
	streams := map[string]*grpc.StreamDesc{
		"DownloadFile": {ServerStreams: true}, "ReadDirectory": {ServerStreams: true}, "WalkDirectory": {ServerStreams: true},
		"UploadFile": {ClientStreams: true},
	}[call.method]
	response := method.out.New().Interface()
	if streams == nil {
		if err := s.conn.Invoke(ctx, full, requests[0], response); err != nil {
			return outcome{err: status.Convert(err)}
		}
		return outcome{responses: []proto.Message{response}}
	}
	stream, err := s.conn.NewStream(ctx, streams, full)
	if err != nil {
		return outcome{err: status.Convert(err)}
	}
	for _, request := range requests {
		if stream.SendMsg(request) != nil {
			break // and receiving says why
		}
	}
	_ = stream.CloseSend() // as above
	for {
		response := method.out.New().Interface()
		switch err := stream.RecvMsg(response); {
		case errors.Is(err, io.EOF):
			return o
		case err != nil:
			o.err = status.Convert(err)
			return o
		}
		o.responses = append(o.responses, response)
		if !streams.ServerStreams {
			return o
		}
	}
}

// replace replaces a text in all members of a message.
func replace(m protoreflect.Message, old, with string) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
		case field.IsList():
			for i := range value.List().Len() {
				if field.Message() != nil {
					replace(value.List().Get(i).Message(), old, with)
				}
			}
		case field.Message() != nil:
			replace(value.Message(), old, with)
		case field.Kind() == protoreflect.StringKind:
			m.Set(field, protoreflect.ValueOfString(strings.ReplaceAll(value.String(), old, with)))
		case field.Kind() == protoreflect.BytesKind:
			m.Set(field, protoreflect.ValueOfBytes(bytes.ReplaceAll(value.Bytes(), []byte(old), []byte(with))))
		}
		return true
	})
}

// forget clears what is never the same twice.
func forget(m protoreflect.Message) {
	if metadata, ok := m.Interface().(*execwirev1.FileMetadata); ok {
		metadata.AccessTime, metadata.ChangeTime, metadata.BirthTime, metadata.Version = nil, nil, nil, ""
		if metadata.GetModifyTime().GetSeconds() != 1_000_000_000 {
			metadata.ModifyTime = nil
		}
		if metadata.GetType() == execwirev1.FileType_FILE_TYPE_SYMLINK || metadata.GetType() == execwirev1.FileType_FILE_TYPE_DIRECTORY {
			metadata.Size = 0
		}
		return
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := range value.List().Len() {
				forget(value.List().Get(i).Message())
			}
		default:
			forget(value.Message())
		}
		return true
	})
}

// gathered are responses with what may be cut in other places put together.
func gathered(responses []proto.Message) (text string) {
	var data []byte
	var entries []string
	for _, m := range responses {
		switch m := m.(type) {
		case *execwirev1.DownloadFileResponse:
			if m.GetData() != nil {
				data = append(data, m.GetData()...)
				continue
			}
		case *execwirev1.ReadDirectoryResponse:
			for _, e := range m.GetEntries() {
				entries = append(entries, strings.Join(strings.Fields(e.String()), " "))
			}
			continue
		}
		text += strings.Join(strings.Fields(m.(fmt.Stringer).String()), " ") + "\n"
	}
	// The order of entries is no promise, and the same for two equal directories
	// neither.
	slices.Sort(entries)
	return fmt.Sprintf("%s%x\n%q", text, data, entries)
}

// snapshot describes a tree.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = fmt.Sprintf("%x", data)
		case info.Mode()&fs.ModeSymlink != 0:
			if content, err = os.Readlink(path); err != nil {
				return err
			}
		}
		fmt.Fprintf(&all, "%q %v %s\n", strings.TrimPrefix(path, dir), info.Mode(), strings.ReplaceAll(content, dir, rootMark))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// TestCallsOnFilesAreTheSameOverTheProtocol makes random calls, well and badly
// formed, over gRPC on one directory, and over the protocol on another one.
func TestCallsOnFilesAreTheSameOverTheProtocol(t *testing.T) {
	s := newGateway(t)
	conn := dial(t, s.address)
	met := map[string]bool{}
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			direct, protocol := side{s.channel, filepath.Join(t.TempDir(), "tree"), "direct-"}, side{conn, filepath.Join(t.TempDir(), "tree"), "protoc-"}
			for _, dir := range []string{direct.dir, protocol.dir} {
				if err := os.Mkdir(dir, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			random := &callMaker{Rand: rand.New(rand.NewPCG(seed, 7)), tag: fmt.Sprint(seed)}
			for range 150 {
				call := random.call()
				want, got := direct.do(t.Context(), call), protocol.do(t.Context(), call)
				met[call.method] = true // subtests run one after the other
				if !sameStatus(got.err, want.err) {
					t.Fatalf("%v\nfails with %v,\nover gRPC %v", call, got.err.Proto(), want.err.Proto())
				}
				if gathered(got.responses) != gathered(want.responses) {
					t.Fatalf("%v\nis answered with\n%s\nover gRPC\n%s", call, gathered(got.responses), gathered(want.responses))
				}
				if got, want := snapshot(t, protocol.dir), snapshot(t, direct.dir); got != want {
					t.Fatalf("after %v (%v) the directory is\n%s\nand over gRPC\n%s", call, got, got, want)
				}
			}
		})
	}
	if len(met) != 18 {
		t.Errorf("%d methods were called", len(met))
	}
}
