package gateway

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

// asksCore attaches a client that asks in the words of the core.
func asksCore(c *core, change ...func(*pipe, *Config)) *client {
	cl := c.connect(change...)
	var result struct{ CoreRequests bool }
	cl.decode(cl.must("initialize", map[string]any{"clientName": "test", "coreRequests": true}), &result)
	if !result.CoreRequests {
		c.t.Error("the server does not say that it is asked so")
	}
	cl.notify("initialized", nil)
	return cl
}

// fromJSON reads a message in the JSON form of protobuf.
func fromJSON[M proto.Message](t *testing.T, raw json.RawMessage, into M) M {
	t.Helper()
	if err := protojson.Unmarshal(raw, into); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return into
}

// coreCall calls a method of the core.
func coreCall[M proto.Message](cl *client, method, request string, into M) M {
	cl.t.Helper()
	var answer struct{ Response json.RawMessage }
	cl.decode(cl.must("core/call", map[string]any{"method": method, "request": json.RawMessage(request)}), &answer)
	t, _ := cl.t.(*testing.T)
	return fromJSON(t, answer.Response, into)
}

func TestCallOfTheCore(t *testing.T) {
	core := newCore(t, withSmallFiles)
	cl := asksCore(core)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	do(t, os.WriteFile(file, []byte("said"), 0o640))
	coreCall(cl, "FileSystemService/CreateSymlink", fmt.Sprintf(`{"path":%q,"target":"file"}`, dir+"/link"), &execwirev1.CreateSymlinkResponse{})
	got := coreCall(cl, "FileSystemService/GetMetadata", fmt.Sprintf(`{"path":%q,"noFollow":true}`, dir+"/link"), &execwirev1.GetMetadataResponse{})
	want, err := execwirev1.NewFileSystemServiceClient(core.channel).GetMetadata(t.Context(), &execwirev1.GetMetadataRequest{Path: dir + "/link", NoFollow: true})
	got.GetMetadata().AccessTime = want.GetMetadata().GetAccessTime() // looking at a link is reading it
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("got %v, want %v, %v", got, want, err)
	}
	read := coreCall(cl, "FileSystemService/ReadFile", fmt.Sprintf(`{"path":%q}`, file), &execwirev1.ReadFileResponse{})
	if string(read.GetData()) != "said" || read.GetMetadata().GetMode() != 0o640 {
		t.Errorf("the file is %v", read)
	}
	environment := coreCall(cl, "EnvironmentService/GetEnvironment", `{}`, &execwirev1.GetEnvironmentResponse{})
	if environment.GetServerVersion() != "test" || environment.GetLimits().GetMessageBytes() != 4<<20 {
		t.Errorf("the environment is %v", environment)
	}
}

func TestCallOfTheCoreIsRefused(t *testing.T) {
	cl := asksCore(newCore(t))
	for _, test := range []struct {
		method, params string
		code           int
		text           string
	}{
		{"core/call", `{"method":"ProcessService/StartProcess"}`, -32601, "cannot call `ProcessService/StartProcess`"},
		{"core/call", `{"method":"SessionService/CloseSession"}`, -32601, "cannot call"},
		{"core/call", `{"method":"FileSystemService/WalkDirectory"}`, -32602, "use core/stream"},
		{"core/stream", `{"streamId":"s","method":"FileSystemService/ReadFile"}`, -32602, "use core/call"},
		{"core/stream", `{"streamId":"` + strings.Repeat("s", 129) + `","method":"HttpService/Fetch"}`, -32602, "longer than 128 bytes"},
		{"core/call", `{"method":"FileSystemService/ReadFile","request":{"path":"/x","noSuch":1}}`, -32602, "is no ReadFileRequest"},
		{"core/call", `{"method":"FileSystemService/ReadFile","request":[]}`, -32602, "is no ReadFileRequest"},
		{"core/receive", `{"streamId":"s"}`, -32004, "unknown stream `s`"},
		{"core/send", `{"streamId":"s","data":"aGkK"}`, -32004, "unknown stream `s`"},
		{"core/send", `{"streamId":"s"}`, -32602, "has to be there"},
		{"core/send", `{"streamId":"s","data":"aGkK","message":{}}`, -32602, "and not both"},
	} {
		cl.refused(test.method, json.RawMessage(test.params), test.code, test.text)
	}
	cl.must("core/cancel", map[string]any{"streamId": "s"}) // that there is none is as good
}

// TestErrorsOfTheCoreAreWhole has an error be told as it is over gRPC, to clients
// that ask so and to no others.
func TestErrorsOfTheCoreAreWhole(t *testing.T) {
	core := newCore(t)
	path := filepath.Join(t.TempDir(), "none")
	_, err := execwirev1.NewFileSystemServiceClient(core.channel).GetMetadata(t.Context(), &execwirev1.GetMetadataRequest{Path: path})
	want := status.Convert(err).Proto()
	for _, call := range []struct{ method, params string }{
		{"core/call", fmt.Sprintf(`{"method":"FileSystemService/GetMetadata","request":{"path":%q}}`, path)},
		{"fs/getMetadata", fmt.Sprintf(`{"path":%q}`, path)},
	} {
		refusal := asksCore(core).refused(call.method, json.RawMessage(call.params), -32004, "No such file or directory (os error 2)")
		raw, err := json.Marshal(refusal.Data["status"])
		do(t, err)
		got := fromJSON(t, raw, &spb.Status{})
		if !proto.Equal(got, want) || refusal.Data["reason"] != "PATH_NOT_FOUND" {
			t.Errorf("%s: got %v, want %v", call.method, got, want)
		}
		other, _ := core.attach("")
		if refusal := other.refused(call.method, json.RawMessage(call.params), -32004, ""); refusal.Data["status"] != nil {
			t.Errorf("%s tells another client of %v", call.method, refusal.Data)
		}
	}
	if details := status.Convert(err).Details(); len(details) < 2 {
		t.Errorf("the error has only %v", details)
	} else if _, ok := details[0].(*errdetails.ErrorInfo); !ok {
		t.Errorf("the first detail is %v", details[0])
	}
}

// TestCallsOfTheCoreKeepTheirOrder asks for a file without waiting until it is
// written.
func TestCallsOfTheCoreKeepTheirOrder(t *testing.T) {
	cl := asksCore(newCore(t, withSmallFiles))
	path := filepath.Join(t.TempDir(), "file")
	for i := range 20 {
		text := fmt.Sprintf("dGV4dA%02d", i)
		cl.ask("core/call", map[string]any{"method": "FileSystemService/WriteFile", "request": map[string]any{"path": path, "data": text}})
		read := cl.ask("core/call", map[string]any{"method": "FileSystemService/ReadFile", "request": map[string]any{"path": path}})
		f := cl.reply(read)
		var answer struct{ Response struct{ Data string } }
		cl.decode(f.Result, &answer)
		if answer.Response.Data != text {
			t.Fatalf("%s was read, want %s", answer.Response.Data, text)
		}
	}
}

func TestPathsOfCoreRequests(t *testing.T) {
	for _, test := range []struct {
		request proto.Message
		want    string
	}{
		{&execwirev1.GetMetadataRequest{Path: "/a/../b/"}, "[/b]"},
		{&execwirev1.GetMetadataRequest{RawPath: []byte("/\xff")}, "[/\xff]"},
		{&execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: &execwirev1.UploadHead{Path: "/a"}}}, "[/a]"},
		{&execwirev1.GetEnvironmentRequest{}, "[]"},
	} {
		if got := fmt.Sprint(pathsOf(test.request.ProtoReflect())); got != test.want {
			t.Errorf("%v has the paths %s, want %s", test.request, got, test.want)
		}
	}
	if both := pathsOf((&execwirev1.CopyPathRequest{SourcePath: "/a", RawDestinationPath: []byte("/b")}).ProtoReflect()); len(both) != 2 {
		t.Errorf("a copy has the paths %v", both)
	}
}

// TestMessagesOfTheCoreAreBounded as they are over gRPC, also where the core is in
// the same program.
func TestMessagesOfTheCoreAreBounded(t *testing.T) { eachCore(t, messagesAreBounded) }

func messagesAreBounded(t *testing.T, cl *client) {
	path := filepath.Join(t.TempDir(), "file")
	large := make([]byte, 4<<20+1)
	for _, test := range []struct {
		method string
		params map[string]any
	}{
		{"core/call", map[string]any{"method": "FileSystemService/WriteFile", "request": map[string]any{"path": path, "data": large}}},
		{"core/stream", map[string]any{"streamId": "h", "method": "HttpService/Fetch", "request": map[string]any{"method": "GET", "url": "http://127.0.0.1:1/", "body": large}}},
	} {
		if refusal := cl.refused(test.method, test.params, -32005, "message_bytes"); refusal.Data["reason"] != "MESSAGE_TOO_LARGE" {
			t.Errorf("%s is refused with %v", test.method, refusal.Data)
		}
	}
	many := `{"path":"/x","sandbox":{"managed":{"fileSystem":{"restricted":{"entries":[` + strings.Repeat(`{},`, maxCoreParts) + `{}]}}}}}`
	cl.refused("core/call", map[string]any{"method": "FileSystemService/ReadFile", "request": json.RawMessage(many)}, -32602, "more than 65536 messages")

	cl.openStream("up", "FileSystemService/UploadFile", fmt.Sprintf(`{"head":{"path":%q,"mode":"UPLOAD_MODE_REPLACE"}}`, path))
	cl.must("core/send", map[string]any{"streamId": "up", "data": large}) // in pieces
	cl.must("core/send", map[string]any{"streamId": "up", "message": map[string]any{"data": large}})
	cl.must("core/send", map[string]any{"streamId": "up", "message": map[string]any{"end": map[string]any{}}})
	if got := cl.receiveStream("up"); !got.Ended {
		t.Errorf("the upload is answered with %+v", got)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != int64(2*len(large)) {
		t.Errorf("the file is %v, %v", info, err)
	}
}

// TestErrorsAboutOtherBytesAreWhole has a name that is no text be in an error.
func TestErrorsAboutOtherBytesAreWhole(t *testing.T) {
	cl := asksCore(newCore(t))
	request := map[string]any{"rawPath": []byte(t.TempDir() + "/\xff")}
	refusal := cl.refused("core/call", map[string]any{"method": "FileSystemService/GetMetadata", "request": request}, -32004, "No such file")
	if refusal.Data["reason"] != "PATH_NOT_FOUND" || refusal.Data["status"] == nil {
		t.Errorf("the error is %v", refusal)
	}
}
