package server_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/internal/auth"
	"github.com/execwire/execwire/internal/errorinfo"
)

// replaceHead returns the head of an upload in mode replace.
func replaceHead(path string, change func(*execwirev1.UploadHead)) *execwirev1.UploadFileRequest {
	head := &execwirev1.UploadHead{Path: path, Mode: execwirev1.UploadMode_UPLOAD_MODE_REPLACE}
	if change != nil {
		change(head)
	}
	return &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_Head{Head: head}}
}

func uploadEnd(digest []byte) *execwirev1.UploadFileRequest {
	return &execwirev1.UploadFileRequest{Message: &execwirev1.UploadFileRequest_End{End: &execwirev1.UploadEnd{Sha256: digest}}}
}

func sum(text string) []byte {
	digest := sha256.Sum256([]byte(text))
	return digest[:]
}

// cut begins an upload and cuts its stream once the server has received so many bytes.
func (f *fixture) cut(received uint64, messages ...*execwirev1.UploadFileRequest) {
	f.t.Helper()
	f.sending(received, messages...)()
	id := messages[0].GetHead().GetUploadId()
	f.awaitUpload(id, func(u *execwirev1.GetUploadResponse) bool { return u.GetExpireTime() != nil })
}

// sending begins an upload and returns once the server has received so many bytes. The
// stream stays open until end is called.
func (f *fixture) sending(received uint64, messages ...*execwirev1.UploadFileRequest) (end func()) {
	f.t.Helper()
	ctx, cancel := context.WithCancelCause(f.ctx)
	stream, err := f.files.UploadFile(ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, m := range messages {
		if err := stream.Send(m); err != nil {
			f.t.Fatal(err)
		}
	}
	f.awaitUpload(messages[0].GetHead().GetUploadId(), func(u *execwirev1.GetUploadResponse) bool { return u.GetReceivedBytes() == received })
	return func() {
		f.t.Helper()
		cancel(errors.New("the test cuts the stream"))
		_ = stream.RecvMsg(&execwirev1.UploadFileResponse{})
	}
}

// The limit on uploads does not count those without a stream.
func TestUpload_Abandoned_DoNotBlockNewOnes(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	for i := range 10 {
		f.cut(1, replaceHead(dir+"/f", func(h *execwirev1.UploadHead) { h.UploadId = fmt.Sprint(i) }), uploadData([]byte("x")))
	}
	if _, err := f.upload(replaceHead(dir+"/f", func(h *execwirev1.UploadHead) { h.UploadId = "9"; h.Offset = 1 }), uploadEnd(nil)); err != nil {
		t.Error(err)
	}
}

// awaitUpload polls an upload until the condition holds.
func (f *fixture) awaitUpload(id string, wanted func(*execwirev1.GetUploadResponse) bool) *execwirev1.GetUploadResponse {
	f.t.Helper()
	for {
		upload, err := f.files.GetUpload(f.ctx, &execwirev1.GetUploadRequest{UploadId: id})
		switch {
		case err == nil && wanted(upload):
			return upload
		case err != nil && status.Code(err) != codes.NotFound:
			f.t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// Of several uploads that expect the same version, one replaces the file, also if all have
// begun before.
func TestUpload_SameVersion_OneReplaces(t *testing.T) {
	f, path := newFixture(t), t.TempDir()+"/f"
	resp, err := f.upload(replaceHead(path, nil), uploadData([]byte("old")), uploadEnd(nil))
	if err != nil || !resp.GetCreated() {
		t.Fatal(resp, err)
	}
	head := replaceHead(path, func(h *execwirev1.UploadHead) { h.IfMatchVersion = resp.GetMetadata().GetVersion() })
	var streams []grpc.ClientStreamingClient[execwirev1.UploadFileRequest, execwirev1.UploadFileResponse]
	for range 4 {
		stream, err := f.files.UploadFile(f.ctx)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, stream)
		for _, m := range []*execwirev1.UploadFileRequest{head, uploadData([]byte("new"))} {
			if err := stream.Send(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	replaced := 0
	var group sync.WaitGroup
	var mu sync.Mutex
	for _, stream := range streams {
		group.Go(func() {
			_ = stream.Send(uploadEnd(nil)) // the answer says why
			resp, err := stream.CloseAndRecv()
			mu.Lock()
			defer mu.Unlock()
			if err == nil && !resp.GetCreated() {
				replaced++
			} else if status.Code(err) != codes.FailedPrecondition {
				t.Error(resp, err)
			}
		})
	}
	group.Wait()
	if replaced != 1 {
		t.Errorf("%d uploads replaced the file", replaced)
	}
	missing := replaceHead(path+"2", func(h *execwirev1.UploadHead) { h.IfMatchVersion = "1-2-3-4-5" })
	if _, err := f.upload(missing, uploadEnd(nil)); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("of a missing file: %v", err)
	}
}

func TestUpload_Replace(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	f.write(dir+"/f", "something longer than what comes")
	if err := os.Link(dir+"/f", dir+"/other"); err != nil {
		t.Fatal(err)
	}
	when := time.Unix(1_000_000_000, 5)
	head := replaceHead(dir+"/f", func(h *execwirev1.UploadHead) {
		h.IfMatchSha256, h.Permissions, h.ModifyTime, h.Sync = sum("something longer than what comes"), proto.Uint32(0o600), timestamppb.New(when), true
	})
	resp, err := f.upload(head, uploadData([]byte("new ")), uploadData([]byte("content")), uploadEnd(sum("new content")))
	if m := resp.GetMetadata(); err != nil || resp.GetSize() != 11 || !bytes.Equal(resp.GetSha256(), sum("new content")) ||
		m.GetMode() != 0o600 || !m.GetModifyTime().AsTime().Equal(when) || m.GetVersion() == "" {
		t.Errorf("UploadFile = %v, %v", resp, err)
	}
	looked, err := f.files.GetMetadata(f.ctx, &execwirev1.GetMetadataRequest{Path: dir + "/f"})
	if err != nil || looked.GetMetadata().GetVersion() != resp.GetMetadata().GetVersion() {
		t.Errorf("the version is %v: %v", looked, err)
	}
	for name, want := range map[string]string{"/f": "new content", "/other": "something longer than what comes"} {
		if got, err := os.ReadFile(dir + name); err != nil || string(got) != want {
			t.Errorf("%s contains %q: %v", name, got, err)
		}
	}
}

func TestUpload_Cut_CanResume(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	named := func(offset uint64) *execwirev1.UploadFileRequest {
		return replaceHead(dir+"/f", func(h *execwirev1.UploadHead) { h.UploadId, h.Offset = "u", offset })
	}
	f.cut(3, named(0), uploadData([]byte("012")))
	f.cut(6, named(2), uploadData([]byte("2345")))
	if list := f.entries(&execwirev1.ReadDirectoryRequest{Path: dir}); len(list) != 0 {
		t.Errorf("the directory contains %v", list)
	}
	upload, err := f.files.GetUpload(f.ctx, &execwirev1.GetUploadRequest{UploadId: "u"})
	if left := time.Until(upload.GetExpireTime().AsTime()); err != nil || upload.GetPath() != dir+"/f" || left <= 0 || left > 10*time.Minute {
		t.Errorf("GetUpload = %v, %v", upload, err)
	}
	_, beyond := f.upload(named(7), uploadData([]byte("x")))
	expectFailure(t, beyond, codes.OutOfRange, execwirev1.ErrorReason_ERROR_REASON_UPLOAD_OFFSET_INVALID)
	if got := errorinfo.Of(beyond).GetMetadata()["received_bytes"]; got != "6" {
		t.Errorf("received_bytes is %q", got)
	}
	resp, err := f.upload(named(6), uploadData([]byte("789")), uploadEnd(sum("012345789")))
	if err != nil || resp.GetSize() != 9 {
		t.Errorf("UploadFile = %v, %v", resp, err)
	}
	f.awaitUpload("u", func(u *execwirev1.GetUploadResponse) bool { return u.GetComplete() && u.GetExpireTime() != nil })
	again, err := f.upload(named(9), uploadEnd(sum("012345789")))
	if err != nil || !proto.Equal(again, resp) {
		t.Errorf("the repeated upload returns %v: %v", again, err)
	}
	if got, err := os.ReadFile(dir + "/f"); err != nil || string(got) != "012345789" {
		t.Errorf("the file contains %q: %v", got, err)
	}
}

// Without an end message the file may be incomplete.
func TestUpload_StreamWithoutEnd_DoesNotReplace(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	f.write(dir+"/f", "old")
	for _, id := range []string{"", "u"} {
		_, err := f.uploadExactly(replaceHead(dir+"/f", func(h *execwirev1.UploadHead) { h.UploadId = id }), uploadData([]byte("ne")))
		expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE)
		if got, err := os.ReadFile(dir + "/f"); err != nil || string(got) != "old" {
			t.Errorf("the file contains %q: %v", got, err)
		}
	}
	if _, err := f.upload(replaceHead(dir+"/f", func(h *execwirev1.UploadHead) { h.UploadId, h.Offset = "u", 2 }), uploadData([]byte("w")), uploadEnd(sum("new"))); err != nil {
		t.Error(err)
	}
	_, err := f.uploadExactly(uploadHead(dir+"/f"), uploadData([]byte("ha")))
	expectFailure(t, err, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE)
	if got, err := os.ReadFile(dir + "/f"); err != nil || string(got) != "ha" {
		t.Errorf("in place the file contains %q: %v", got, err)
	}
}

func TestUpload_Errors_HaveReason(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	f.write(dir+"/f", "old")
	with := func(change func(*execwirev1.UploadHead)) *execwirev1.UploadFileRequest {
		return replaceHead(dir+"/f", change)
	}
	_, digest := f.upload(with(nil), uploadData([]byte("new")), uploadEnd(sum("other")))
	_, content := f.upload(with(func(h *execwirev1.UploadHead) { h.IfMatchSha256 = sum("other") }))
	_, exists := f.upload(with(func(h *execwirev1.UploadHead) { h.IfMissing = true }))
	_, unknown := f.upload(with(func(h *execwirev1.UploadHead) { h.UploadId, h.Offset = "u", 1 }))
	_, behind := f.upload(with(nil), uploadEnd(nil), uploadData([]byte("x")))
	if err := syscall.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	_, special := f.upload(replaceHead(dir+"/fifo", nil))
	for i := range 4 {
		defer f.sending(1, with(func(h *execwirev1.UploadHead) { h.UploadId = strconv.Itoa(i) }), uploadData([]byte("x")))()
	}
	_, many := f.upload(with(func(h *execwirev1.UploadHead) { h.UploadId = "4" }))
	if got := errorinfo.Of(many).GetMetadata()["limit"]; got != "4" {
		t.Errorf("the limit is %q", got)
	}
	expectRetry(t, many, "uploads_per_principal")
	for _, tt := range []struct {
		err  error
		code codes.Code
		why  execwirev1.ErrorReason
	}{
		{digest, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_DIGEST_MISMATCH},
		{content, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_CONTENT_NOT_MATCHED},
		{exists, codes.AlreadyExists, execwirev1.ErrorReason_ERROR_REASON_PATH_ALREADY_EXISTS},
		{unknown, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_UPLOAD_NOT_FOUND},
		{behind, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_UNEXPECTED_MESSAGE},
		{special, codes.FailedPrecondition, execwirev1.ErrorReason_ERROR_REASON_NOT_A_REGULAR_FILE},
		{many, codes.ResourceExhausted, execwirev1.ErrorReason_ERROR_REASON_TOO_MANY_UPLOADS},
	} {
		expectFailure(t, tt.err, tt.code, tt.why)
	}
	if got, err := os.ReadFile(dir + "/f"); err != nil || string(got) != "old" {
		t.Errorf("the file contains %q: %v", got, err)
	}
}

func TestUpload_OtherPrincipal_IsNotFound(t *testing.T) {
	principal := auth.Principal{Name: "one"}
	f, dir := newFixture(t, func(s *settings) { s.principal = func() auth.Principal { return principal } }), t.TempDir()
	f.cut(1, replaceHead(dir+"/f", func(h *execwirev1.UploadHead) { h.UploadId = "u" }), uploadData([]byte("x")))
	principal = auth.Principal{Name: "other"}
	_, err := f.files.GetUpload(f.ctx, &execwirev1.GetUploadRequest{UploadId: "u"})
	expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_UPLOAD_NOT_FOUND)
	_, err = f.upload(replaceHead(dir+"/f", func(h *execwirev1.UploadHead) { h.UploadId, h.Offset = "u", 1 }))
	expectFailure(t, err, codes.NotFound, execwirev1.ErrorReason_ERROR_REASON_UPLOAD_NOT_FOUND)
}

func TestUpload_MalformedRequest_NamesField(t *testing.T) {
	f, dir := newFixture(t), t.TempDir()
	replaced := func(change func(*execwirev1.UploadHead)) error {
		_, err := f.upload(replaceHead(dir+"/f", change))
		return err
	}
	inPlace := func(change func(*execwirev1.UploadHead)) error {
		head := uploadHead(dir + "/f")
		change(head.GetHead())
		_, err := f.upload(head)
		return err
	}
	asked := func(id string) error {
		_, err := f.files.GetUpload(f.ctx, &execwirev1.GetUploadRequest{UploadId: id})
		return err
	}
	_, end := f.upload(uploadHead(dir+"/f"), uploadEnd(sum("")))
	_, shortEnd := f.upload(replaceHead(dir+"/f", nil), uploadEnd([]byte("short")))
	f.cut(1, replaceHead(dir+"/g", func(h *execwirev1.UploadHead) { h.UploadId = "u" }), uploadData([]byte("x")))
	long := string(make([]byte, 129))
	for field, errs := range map[string][]error{
		"head.upload_id":       {inPlace(func(h *execwirev1.UploadHead) { h.UploadId = "u" }), replaced(func(h *execwirev1.UploadHead) { h.UploadId = long })},
		"head.offset":          {inPlace(func(h *execwirev1.UploadHead) { h.Offset = 1 }), replaced(func(h *execwirev1.UploadHead) { h.Offset = 1 }), replaced(func(h *execwirev1.UploadHead) { h.UploadId, h.Offset = "u", 1<<63 })},
		"head.if_match_sha256": {inPlace(func(h *execwirev1.UploadHead) { h.IfMatchSha256 = sum("") }), replaced(func(h *execwirev1.UploadHead) { h.IfMatchSha256 = []byte("short") })},
		"head.if_missing":      {inPlace(func(h *execwirev1.UploadHead) { h.IfMissing = true }), replaced(func(h *execwirev1.UploadHead) { h.IfMissing, h.IfMatchSha256 = true, sum("") })},
		"head.permissions":     {inPlace(func(h *execwirev1.UploadHead) { h.Permissions = proto.Uint32(0) }), replaced(func(h *execwirev1.UploadHead) { h.Permissions = proto.Uint32(0o10000) })},
		"head.modify_time":     {inPlace(func(h *execwirev1.UploadHead) { h.ModifyTime = timestamppb.Now() }), replaced(func(h *execwirev1.UploadHead) { h.ModifyTime = &timestamppb.Timestamp{Nanos: -1} })},
		"head.sync":            {inPlace(func(h *execwirev1.UploadHead) { h.Sync = true })},
		"head.path":            {replaced(func(h *execwirev1.UploadHead) { h.UploadId, h.Offset = "u", 1 }), replaced(func(h *execwirev1.UploadHead) { h.Path = "f" })},
		"end.sha256":           {end, shortEnd},
		"upload_id":            {asked(""), asked(long)},
	} {
		for _, err := range errs {
			expectFailure(t, err, codes.InvalidArgument, execwirev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
			if got := violatedField(err); got != field {
				t.Errorf("the violated field is %q, want %q: %v", got, field, err)
			}
		}
	}
}
