package files

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	execwirev1 "github.com/execwire/execwire/gen/go/execwire/v1"
	"github.com/execwire/execwire/integration/harness"
)

// hardNames are names that are easily misinterpreted or changed.
var hardNames = []string{
	"new\nline", "carriage\rreturn", "tab\tbell\abackspace\b", "\x1b[31mred\x7f", `quo"te'`, `back\slash\x41`,
	" space ", "-rf", "...", "~", "per%41cent%", "#fragment?query&a=b", "*?[a-z]{x,y}", "$(exit)`exit`;|&", "a:b",
	"ünïcödé 🎉", "u\u0308 is not \u00fc", "line\u2028separator", "\ufeffmark", "\ufffd", "\u202edlo",
	"bad\xff\xfe", "\xed\xa0\x80surrogate", "broken off \xe2\x82", "over\xc0\xaflong", strings.Repeat("x", 255), strings.Repeat("\xff", 255),
}

// Files that methods need, and whether they exist afterwards.
var (
	needDirectory = []protoreflect.Name{"ReadDirectory", "WalkDirectory", "WatchDirectory"}
	needNothing   = []protoreflect.Name{"CreateDirectory", "CreateSymlink"}
	moveFirst     = []protoreflect.Name{"RemovePath", "RenamePath"}
)

// Every method accepts every possible name unchanged.
func TestNames_EveryMethodAcceptsEveryName(t *testing.T) {
	s := harness.NewServer(t, nil)
	for _, d := range []harness.Transport{harness.InProcess, harness.TCPTransport} {
		conn, _ := s.Connect(t, d)
		for _, m := range pathMethods(t) {
			for _, name := range hardNames {
				dir := filepath.Join(harness.ShortDir(t), name)
				paths := []string{filepath.Join(dir, name)}
				for i := 1; i < len(m.paths); i++ {
					paths = append(paths, filepath.Join(dir, fmt.Sprint(i)+name[:min(len(name), 200)]))
				}
				err := os.Mkdir(dir, 0o755)
				switch {
				case err != nil, slices.Contains(needNothing, m.Name()):
				case slices.Contains(needDirectory, m.Name()):
					err = os.Mkdir(paths[0], 0o755)
				default:
					err = os.WriteFile(paths[0], []byte("content"), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				if _, err := m.call(harness.Context(t), t, conn, paths...); err != nil {
					t.Errorf("%s, %s of %q: %v", d, m.Name(), name, err)
					continue
				}
				for i, path := range paths {
					_, err := os.Lstat(path)
					if gone := i == 0 && slices.Contains(moveFirst, m.Name()); (err != nil) != gone {
						t.Errorf("%s, %s of %q left path %d: %v", d, m.Name(), name, i, err)
					}
				}
			}
		}
	}
}

// bytesOf returns a name from its text, or from its bytes if it is not text.
func bytesOf(text string, raw []byte) string {
	if len(raw) > 0 {
		return string(raw)
	}
	return text
}

// Responses have names byte by byte.
func TestNames_InResponses_AreExact(t *testing.T) {
	s := harness.NewServer(t, nil)
	dir := harness.ShortDir(t)
	for i, name := range hardNames {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../"+name, filepath.Join(dir, name, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	want := slices.Sorted(slices.Values(hardNames))
	for _, d := range []harness.Transport{harness.InProcess, harness.TCPTransport} {
		conn, _ := s.Connect(t, d)
		files := execwirev1.NewFileSystemServiceClient(conn)
		var got []string
		stream, err := files.ReadDirectory(harness.Context(t), &execwirev1.ReadDirectoryRequest{Path: dir})
		for err == nil {
			var m *execwirev1.ReadDirectoryResponse
			m, err = stream.Recv()
			for _, e := range m.GetEntries() {
				got = append(got, bytesOf(e.GetName(), e.GetRawName()))
			}
		}
		if slices.Sort(got); err != io.EOF || !slices.Equal(got, want) {
			t.Errorf("%s: ReadDirectory reports %q: %v", d, got, err)
		}
		for i, name := range hardNames {
			link := []byte(filepath.Join(dir, name, fmt.Sprint(i)))
			resolved, err := files.CanonicalizePath(harness.Context(t), &execwirev1.CanonicalizePathRequest{RawPath: link})
			if got := bytesOf(resolved.GetPath(), resolved.GetRawPath()); err != nil || got != filepath.Join(dir, name) {
				t.Errorf("%s: the link in %q leads to %q: %v", d, name, got, err)
			}
			looked, err := files.GetMetadata(harness.Context(t), &execwirev1.GetMetadataRequest{RawPath: link, NoFollow: true})
			if got := bytesOf(looked.GetLinkTarget(), looked.GetRawLinkTarget()); err != nil || got != "../"+name {
				t.Errorf("%s: the link in %q has %q: %v", d, name, got, err)
			}
		}
	}
}

// A walk and a watch report paths byte by byte, and AwaitPaths accepts them.
func TestNames_InNotifications_AreExact(t *testing.T) {
	s := harness.NewServer(t, nil)
	files := execwirev1.NewFileSystemServiceClient(s.Core(t))
	dir := harness.ShortDir(t)
	ctx, cancel := context.WithCancelCause(harness.Context(t))
	defer cancel(harness.ErrStop)
	watch, err := files.WatchDirectory(ctx, &execwirev1.WatchDirectoryRequest{Path: dir, Settle: durationpb.New(0)})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := watch.Recv(); err != nil || m.GetStarted() == nil {
		t.Fatalf("a watch begins with %v: %v", m, err)
	}
	var waits []execwirev1.FileSystemService_AwaitPathsClient
	for _, name := range hardNames {
		wait, err := files.AwaitPaths(ctx, &execwirev1.AwaitPathsRequest{Missing: []*execwirev1.AwaitedPath{{RawPath: []byte(filepath.Join(dir, name))}}})
		if err != nil {
			t.Fatal(err)
		}
		if m, err := wait.Recv(); err != nil {
			t.Fatalf("waiting for %q begins with %v: %v", name, m, err)
		}
		waits = append(waits, wait)
	}
	for _, name := range hardNames {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i, wait := range waits {
		if m, err := wait.Recv(); err != nil {
			t.Errorf("waiting for %q ends with %v: %v", hardNames[i], m, err)
		}
	}
	want := slices.Sorted(slices.Values(hardNames))
	told := map[string]bool{}
	for len(told) < len(want) {
		m, err := watch.Recv()
		if err != nil {
			t.Fatalf("the watch ended after %q: %v", slices.Sorted(maps.Keys(told)), err)
		}
		for _, change := range m.GetChanges().GetChanges() {
			told[bytesOf(change.GetPath(), change.GetRawPath())] = true
		}
	}
	if got := slices.Sorted(maps.Keys(told)); !slices.Equal(got, want) {
		t.Errorf("the watch reports %q", got)
	}
	var got []string
	walk, err := files.WalkDirectory(ctx, &execwirev1.WalkDirectoryRequest{Path: dir})
	for err == nil {
		var m *execwirev1.WalkDirectoryResponse
		m, err = walk.Recv()
		for _, e := range m.GetEntries().GetEntries() {
			got = append(got, bytesOf(e.GetPath(), e.GetRawPath()))
		}
	}
	if slices.Sort(got); err != io.EOF || !slices.Equal(got, want) {
		t.Errorf("the walk reports %q: %v", got, err)
	}
}

// fileURI returns the URI of a path, the only form in which JSON can name every path.
func fileURI(path string) string {
	var b strings.Builder
	b.WriteString("file://")
	for _, c := range []byte(path) {
		if c == '/' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// In JSON-RPC every name can be sent as a URI, and every reported name is exact.
func TestNames_JSONRPC(t *testing.T) {
	c := harness.WebsocketClient(t, harness.NewServer(t, nil).Address(harness.WebsocketTransport)).Initialize("")
	dir := harness.ShortDir(t)
	for _, name := range hardNames {
		path := filepath.Join(dir, name, name)
		c.Result("fs/createDirectory", harness.RPCParams{"path": fileURI(filepath.Dir(path))}, nil)
		c.Result("fs/writeFile", harness.RPCParams{"path": fileURI(path), "dataBase64": inBase64([]byte(name))}, nil)
		if content, err := os.ReadFile(path); err != nil || string(content) != name {
			t.Errorf("%q has %q: %v", name, content, err)
		}
		var read struct{ DataBase64 []byte }
		if c.Result("fs/readFile", harness.RPCParams{"path": fileURI(path)}, &read); string(read.DataBase64) != name {
			t.Errorf("%q is read as %q", name, read.DataBase64)
		}
		var resolved struct{ Path string }
		c.Result("fs/canonicalize", harness.RPCParams{"path": fileURI(path)}, &resolved)
		if got, err := url.PathUnescape(strings.TrimPrefix(resolved.Path, "file://")); err != nil || got != path {
			t.Errorf("%q is resolved as %q: %v", name, got, err)
		}
		c.Result("fs/copy", harness.RPCParams{"sourcePath": fileURI(path), "destinationPath": fileURI(filepath.Dir(path) + "/copy"), "recursive": false}, nil)
		c.Result("fs/remove", harness.RPCParams{"path": fileURI(filepath.Dir(path)) + "/copy", "force": false}, nil)
		if !utf8.ValidString(name) {
			continue
		}
		c.Result("fs/getMetadata", harness.RPCParams{"path": path}, nil) // as it is, in a string
	}
	var listed struct {
		Entries []struct{ FileName, FileNameBase64 string }
	}
	c.Result("fs/readDirectory", harness.RPCParams{"path": dir}, &listed)
	var got []string
	for _, e := range listed.Entries {
		name := e.FileName
		if e.FileNameBase64 != "" {
			raw, err := base64.StdEncoding.DecodeString(e.FileNameBase64)
			if err != nil || !strings.Contains(name, "\ufffd") {
				t.Errorf("%q is reported as %q: %v", raw, name, err)
			}
			name = string(raw)
		}
		got = append(got, name)
	}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(hardNames))) {
		t.Errorf("fs/readDirectory reports %q", got)
	}
}
