package execserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

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
	described := execwirev1.File_execwire_v1_filesystem_proto.Services().ByName("FileSystemService").Methods().ByName(protoreflect.Name(call.method))
	answer, err := protoregistry.GlobalTypes.FindMessageByName(described.Output().FullName())
	if err != nil {
		panic(err)
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
	response := answer.New().Interface()
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
		response := answer.New().Interface()
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
