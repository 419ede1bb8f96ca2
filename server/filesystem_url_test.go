package server_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
)

func TestSignFileURL(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const get, put = execwirev1.FileURLMethod_FILE_URL_METHOD_GET, execwirev1.FileURLMethod_FILE_URL_METHOD_PUT
	before := time.Now()
	resp, err := f.files.SignFileURL(f.ctx, &execwirev1.SignFileURLRequest{Path: "/a/../b ?%", Method: put, MaxBytes: proto.Uint64(7)})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(resp.GetUrl())
	if err != nil || u.Path != "/v1/files/b ?%" || u.Query().Get("max_bytes") != "7" || u.Query().Get("principal") != "in-process" {
		t.Errorf("%s, %v", resp.GetUrl(), err)
	}
	if left := resp.GetExpireTime().AsTime().Sub(before); left < 15*time.Minute || left > 16*time.Minute {
		t.Errorf("it expires in %v", left)
	}
	if resp, err := f.files.SignFileURL(f.ctx, &execwirev1.SignFileURLRequest{RawPath: []byte("/\xff"), Method: get, Expiry: durationpb.New(time.Hour)}); err != nil ||
		!strings.HasPrefix(resp.GetUrl(), "/v1/files/%FF?") {
		t.Error(resp, err)
	}
	for field, req := range map[string]*execwirev1.SignFileURLRequest{
		"path":      {Path: "b", Method: get},
		"method":    {Path: "/b"},
		"expiry":    {Path: "/b", Method: get, Expiry: durationpb.New(time.Hour + 1)},
		"expiry is": {Path: "/b", Method: get, Expiry: durationpb.New(-time.Hour)},
		"max_bytes": {Path: "/b", Method: get, MaxBytes: proto.Uint64(7)},
	} {
		_, err := f.files.SignFileURL(f.ctx, req)
		if status.Code(err) != codes.InvalidArgument || !strings.HasPrefix(status.Convert(err).Message(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestDownload_FailIfChanged(t *testing.T) {
	t.Parallel()
	f, path := newFixture(t), t.TempDir()+"/f"
	f.write(path, strings.Repeat("x", 3<<20)) // more than is sent ahead
	for _, test := range []struct {
		change func()
		want   codes.Code
	}{
		{func() { f.upload(replaceHead(path, nil), uploadData([]byte("new")), uploadEnd(nil)) }, codes.OK}, // another file
		{func() { f.write(path, "new") }, codes.Aborted},
	} {
		stream, err := f.files.DownloadFile(f.ctx, &execwirev1.DownloadFileRequest{Path: path, FailIfChanged: true})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		test.change()
		if err := drained(stream, nil); status.Code(err) != test.want {
			t.Errorf("%v, want %v", err, test.want)
		}
		f.write(path, strings.Repeat("x", 3<<20))
	}
}
